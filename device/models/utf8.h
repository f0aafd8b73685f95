// UTF-8 as Unicode 15, table 3-7 defines it: no overlong forms, no surrogates, nothing past U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace troupe::device {

// A character and its length in bytes; size 0 = what stands there is no character.
struct Utf8Char {
  char32_t value = 0;
  std::size_t size = 0;
};

// The character that `s`, not empty, begins with.
inline Utf8Char utf8_front(std::string_view s) {
  auto byte = [&](std::size_t i) { return i < s.size() ? static_cast<unsigned char>(s[i]) : 0u; };
  const unsigned b0 = byte(0);
  if (b0 < 0x80) return {b0, 1};
  const std::size_t size = b0 >= 0xc2 && b0 <= 0xdf ? 2 : (b0 & 0xf0) == 0xe0 ? 3 : b0 >= 0xf0 && b0 <= 0xf4 ? 4 : 0;
  if (size == 0) return {};
  const unsigned least = b0 == 0xe0 ? 0xa0 : b0 == 0xf0 ? 0x90 : 0x80;
  const unsigned most = b0 == 0xed ? 0x9f : b0 == 0xf4 ? 0x8f : 0xbf;
  if (byte(1) < least || byte(1) > most) return {};
  char32_t value = (b0 & (0xffu >> (size + 1))) << 6 | (byte(1) & 0x3f);
  for (std::size_t i = 2; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    value = value << 6 | (byte(i) & 0x3f);
  }
  return {value, size};
}

// The offset of the first byte that does not begin a character; none if all of `s` is UTF-8.
inline std::optional<std::size_t> find_invalid_utf8(std::string_view s) {
  for (std::size_t at = 0; at < s.size();) {
    const Utf8Char c = utf8_front(s.substr(at));
    if (c.size == 0) return at;
    at += c.size;
  }
  return std::nullopt;
}

}  // namespace troupe::device
