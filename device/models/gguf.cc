#include "device/models/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "device/models/file_mapping.h"
#include "device/models/gguf_format.h"

namespace troupe::device {

using namespace gguf_format;

namespace {

bool is_integer(std::uint32_t type) { return type <= kI32 || type == kU64 || type == kI64; }

// An integer value of any type, as its 64 bits and whether they are to be read as negative.
struct Integer {
  std::uint64_t bits = 0;
  bool negative = false;
};
Integer load_integer(const std::byte* p, std::uint32_t type) {
  auto from_signed = [](std::int64_t v) { return Integer{static_cast<std::uint64_t>(v), v < 0}; };
  switch (type) {
    case kU8:
      return {load<std::uint8_t>(p)};
    case kI8:
      return from_signed(load<std::int8_t>(p));
    case kU16:
      return {load<std::uint16_t>(p)};
    case kI16:
      return from_signed(load<std::int16_t>(p));
    case kU32:
      return {load<std::uint32_t>(p)};
    case kI32:
      return from_signed(load<std::int32_t>(p));
    case kU64:
      return {load<std::uint64_t>(p)};
    default:
      return from_signed(load<std::int64_t>(p));
  }
}

}  // namespace

Result<GgufFile> GgufFile::open(const std::string& path) {
  TROUPE_TRY(auto mapping, map_file(path));
  TROUPE_TRY(auto parsed, parse(mapping.span(), path));
  parsed.mapping_ = std::move(mapping.data);
  return parsed;
}

const GgufFile::Value* GgufFile::find(std::string_view key) const {
  auto it = std::lower_bound(values_by_key_.begin(), values_by_key_.end(), key, [&](auto i, auto k) { return values_[i].key < k; });
  return it != values_by_key_.end() && values_[*it].key == key ? &values_[*it] : nullptr;
}

const GgufTensor* GgufFile::tensor(std::string_view name) const {
  auto it = std::lower_bound(tensors_by_name_.begin(), tensors_by_name_.end(), name, [&](auto i, auto k) { return tensors_[i].name < k; });
  return it != tensors_by_name_.end() && tensors_[*it].name == name ? &tensors_[*it] : nullptr;
}

Error GgufFile::wrong_type(const Value& v, const char* what) const {
  return {ErrorCode::bad_file, fmt::format("{}: key '{}' at byte {}: {} expected, found {}{}", name_, shown(v.key), v.at, what,
                                           v.is_array ? "an array of " : "", kValueNames[v.type])};
}

Result<const GgufFile::Value*> GgufFile::want(std::string_view key, bool array, const char* what) const {
  const Value* v = find(key);
  if (v == nullptr) return Error{ErrorCode::not_found, fmt::format("{}: key '{}' is missing; {} expected", name_, shown(key), what)};
  if (v->is_array != array) return wrong_type(*v, what);
  return v;
}

Result<std::uint64_t> GgufFile::get_uint(std::string_view key) const {
  TROUPE_TRY(auto v, want(key, false, "an integer"));
  if (!is_integer(v->type)) return wrong_type(*v, "an integer");
  const Integer n = load_integer(bytes_.data() + v->at, v->type);
  if (n.negative) return wrong_type(*v, "an integer that is not negative");
  return n.bits;
}

Result<double> GgufFile::get_float(std::string_view key) const {
  TROUPE_TRY(auto v, want(key, false, "a float"));
  if (v->type == kF32) return static_cast<double>(load<float>(bytes_.data() + v->at));
  if (v->type == kF64) return load<double>(bytes_.data() + v->at);
  return wrong_type(*v, "a float");
}

Result<bool> GgufFile::get_bool(std::string_view key) const {
  TROUPE_TRY(auto v, want(key, false, "a bool"));
  if (v->type != kBool) return wrong_type(*v, "a bool");
  return load<std::uint8_t>(bytes_.data() + v->at) != 0;
}

Result<std::string_view> GgufFile::get_string(std::string_view key) const {
  TROUPE_TRY(auto v, want(key, false, "a string"));
  if (v->type != kString) return wrong_type(*v, "a string");
  return std::string_view(reinterpret_cast<const char*>(bytes_.data() + v->at + 8), load<std::uint64_t>(bytes_.data() + v->at));
}

Result<std::vector<std::string_view>> GgufFile::get_strings(std::string_view key) const {
  TROUPE_TRY(auto v, want(key, true, "an array of strings"));
  if (v->type != kString) return wrong_type(*v, "an array of strings");
  std::vector<std::string_view> out;
  out.reserve(v->count);
  const std::byte* p = bytes_.data() + v->at;
  for (std::uint64_t i = 0; i < v->count; ++i) {
    const auto size = load<std::uint64_t>(p);
    out.emplace_back(reinterpret_cast<const char*>(p + 8), size);
    p += 8 + size;
  }
  return out;
}

Result<std::vector<std::int64_t>> GgufFile::get_ints(std::string_view key) const {
  TROUPE_TRY(auto v, want(key, true, "an array of integers"));
  if (!is_integer(v->type)) return wrong_type(*v, "an array of integers");
  std::vector<std::int64_t> out;
  out.reserve(v->count);
  for (std::uint64_t i = 0; i < v->count; ++i) {
    const Integer n = load_integer(bytes_.data() + v->at + i * kValueBytes[v->type], v->type);
    if (!n.negative && n.bits > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      return wrong_type(*v, "integers below 2^63");
    out.push_back(static_cast<std::int64_t>(n.bits));
  }
  return out;
}

Result<std::vector<float>> GgufFile::get_floats(std::string_view key) const {
  TROUPE_TRY(auto v, want(key, true, "an array of floats"));
  if (v->type != kF32 && v->type != kF64) return wrong_type(*v, "an array of floats");
  std::vector<float> out;
  out.reserve(v->count);
  for (std::uint64_t i = 0; i < v->count; ++i) {
    const std::byte* p = bytes_.data() + v->at + i * kValueBytes[v->type];
    out.push_back(v->type == kF32 ? load<float>(p) : static_cast<float>(load<double>(p)));
  }
  return out;
}

std::vector<std::string> GgufFile::keys() const {
  std::vector<std::string> out;
  out.reserve(values_.size());
  for (const Value& v : values_) out.emplace_back(v.key);
  return out;
}

}  // namespace troupe::device
