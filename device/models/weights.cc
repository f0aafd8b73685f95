#include "device/models/weights.h"

#include <fmt/format.h>

#include <optional>
#include <string>

namespace troupe::device {

namespace {

std::string shape(const GgufTensor& t) {
  std::string s = "[";
  for (std::size_t i = 0; i < t.dims.size(); ++i) s += fmt::format("{}{}", i == 0 ? "" : ", ", t.dims[i]);
  return s + "]";
}

std::optional<kernels::Format> format(TensorType type) {
  switch (type) {
    case TensorType::F32:
      return kernels::Format::f32;
    case TensorType::Q8_0:
      return kernels::Format::q8_0;
    case TensorType::Q4_1:
      return kernels::Format::q4_1;
    default:
      return std::nullopt;
  }
}

Error missing(const GgufFile& file, std::string_view name, const std::string& expected) {
  return {ErrorCode::bad_file, fmt::format("{}: tensor {} is missing; a {} is expected", file.path(), name, expected)};
}

Error misshaped(const GgufFile& file, const GgufTensor& t, const std::string& expected) {
  return {ErrorCode::bad_file,
          fmt::format("{}: tensor {} is {} {}; a {} is expected", file.path(), t.name, device::name(t.type), shape(t), expected)};
}

}  // namespace

Result<kernels::Weight> matrix(const GgufFile& file, std::string_view name, std::uint32_t rows, std::uint32_t cols) {
  const std::string expected = fmt::format("matrix [{}, {}]", cols, rows);
  const GgufTensor* t = file.tensor(name);
  if (t == nullptr) return missing(file, name, expected);
  if (t->dims.size() != 2 || t->dims[0] != cols || t->dims[1] != rows) return misshaped(file, *t, expected);
  const auto stored = format(t->type);
  if (!stored) {
    return Error{ErrorCode::unsupported, fmt::format("{}: tensor {} is {}; this build reads F32, Q8_0 and Q4_1 weights", file.path(),
                                                     t->name, device::name(t->type))};
  }
  if (t->bytes != kernels::row_bytes(*stored, cols) * rows) return misshaped(file, *t, expected);
  return kernels::Weight{t->data, *stored, rows, cols};
}

Result<const float*> vector(const GgufFile& file, std::string_view name, std::uint32_t n) {
  const std::string expected = fmt::format("F32 vector [{}]", n);
  const GgufTensor* t = file.tensor(name);
  if (t == nullptr) return missing(file, name, expected);
  if (t->type != TensorType::F32 || t->dims.size() != 1 || t->dims[0] != n) return misshaped(file, *t, expected);
  return reinterpret_cast<const float*>(t->data);
}

}  // namespace troupe::device
