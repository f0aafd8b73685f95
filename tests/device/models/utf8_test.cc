#include "device/models/utf8.h"

#include <gtest/gtest.h>

namespace troupe::device {
namespace {

std::string encoded(std::uint32_t c) {
  auto byte = [](std::uint32_t b) { return static_cast<char>(b); };
  if (c < 0x80) return {byte(c)};
  if (c < 0x800) return {byte(0xc0 | c >> 6), byte(0x80 | (c & 0x3f))};
  if (c < 0x10000) return {byte(0xe0 | c >> 12), byte(0x80 | (c >> 6 & 0x3f)), byte(0x80 | (c & 0x3f))};
  return {byte(0xf0 | c >> 18), byte(0x80 | (c >> 12 & 0x3f)), byte(0x80 | (c >> 6 & 0x3f)), byte(0x80 | (c & 0x3f))};
}

TEST(Utf8, EveryCodePoint) {
  for (std::uint32_t c = 0; c < 0x110800; ++c) {
    const bool valid = c < 0x110000 && (c < 0xd800 || c > 0xdfff);
    const std::string s = encoded(c);
    const Utf8Char front = utf8_front(s);
    ASSERT_EQ(front.size, valid ? s.size() : 0) << std::hex << c;
    if (valid) {
      ASSERT_EQ(static_cast<std::uint32_t>(front.value), c);
    }
    ASSERT_EQ(find_invalid_utf8("ab" + s), valid ? std::nullopt : std::optional<std::size_t>(2)) << std::hex << c;
  }
}

TEST(Utf8, MalformedBytes) {
  for (std::string bad : {"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf", "\xf5\x80\x80\x80",
                          "\xff", "\xc3", "\xe2\x82", "\xf0\x9f\x99", "\xc3(", "\xe2\x82(", "\xf0\x9f\x99("}) {
    EXPECT_EQ(find_invalid_utf8(bad), 0u);
    EXPECT_EQ(find_invalid_utf8("\xc3\xa9" + bad), 2u);
  }
  EXPECT_EQ(find_invalid_utf8(""), std::nullopt);
}

}  // namespace
}  // namespace troupe::device
