// What the reader and the getters of GGUF share: the value types of the format. Private to gguf*.cc.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace troupe::device::gguf_format {

static_assert(std::endian::native == std::endian::little, "GGUF values are read as they lie in the file");

enum ValueType : std::uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64, kValueTypes };

inline constexpr const char* kValueNames[kValueTypes] = {"uint8", "int8",   "uint16", "int16",  "uint32", "int32",  "float32",
                                                         "bool",  "string", "array",  "uint64", "int64",  "float64"};
// Bytes of a value of fixed size; 0 = string or array.
inline constexpr std::uint8_t kValueBytes[kValueTypes] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

template <class T>
T load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

// Names come from the file: cut, and with what is not printable ASCII replaced, before they go into a message.
inline std::string shown(std::string_view s) {
  std::string out(s.substr(0, 80));
  for (char& c : out) {
    if (c < 0x20 || c > 0x7e) c = '?';
  }
  if (s.size() > 80) out += "...";
  return out;
}

}  // namespace troupe::device::gguf_format
