#include "device/models/weights.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "kernels/host/half.h"

namespace troupe::device {

namespace {

std::string shape(const StoredTensor& t) {
  std::string s = "[";
  for (std::size_t i = 0; i < t.dims.size(); ++i) s += fmt::format("{}{}", i == 0 ? "" : ", ", t.dims[i]);
  return s + "]";
}

std::optional<kernels::Format> format(TensorType type) {
  switch (type) {
    case TensorType::F32:
      return kernels::Format::f32;
    case TensorType::F16:
      return kernels::Format::f16;
    case TensorType::BF16:
      return kernels::Format::bf16;
    case TensorType::Q8_0:
      return kernels::Format::q8_0;
    case TensorType::Q4_0:
      return kernels::Format::q4_0;
    case TensorType::Q4_1:
      return kernels::Format::q4_1;
    case TensorType::Q4_K:
      return kernels::Format::q4_k;
    case TensorType::Q6_K:
      return kernels::Format::q6_k;
    default:
      return std::nullopt;
  }
}

Error missing(const TensorSource& source, std::string_view name, const std::string& expected) {
  return {ErrorCode::bad_file, fmt::format("{}: tensor {} is missing; a {} is expected", source.path(), name, expected)};
}

Error misshaped(const TensorSource& source, const StoredTensor& t, const std::string& expected) {
  return {ErrorCode::bad_file,
          fmt::format("{}: tensor {} is {} {}; a {} is expected", source.path(), t.name, device::name(t.type), shape(t), expected)};
}

}  // namespace

Result<kernels::Weight> matrix(const TensorSource& source, std::string_view name, std::uint32_t rows, std::uint32_t cols) {
  const std::string expected = fmt::format("matrix [{}, {}]", cols, rows);
  const StoredTensor* t = source.tensor(name);
  if (t == nullptr) return missing(source, name, expected);
  if (t->dims.size() != 2 || t->dims[0] != cols || t->dims[1] != rows) return misshaped(source, *t, expected);
  const auto stored = format(t->type);
  if (!stored) {
    return Error{ErrorCode::unsupported,
                 fmt::format("{}: tensor {} is {}; this build reads F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q4_K and Q6_K weights", source.path(),
                             t->name, device::name(t->type))};
  }
  if (cols % 32 != 0) {
    return Error{ErrorCode::unsupported,
                 fmt::format("{}: tensor {} has rows of {}; the kernels need a multiple of 32", source.path(), t->name, cols)};
  }
  if (cols % kernels::block_elements(*stored) != 0 || t->bytes != kernels::row_bytes(*stored, cols) * rows) {
    return misshaped(source, *t, expected);
  }
  return kernels::Weight{t->data, *stored, rows, cols};
}

namespace {

Result<const StoredTensor*> narrow_tensor(const TensorSource& source, std::string_view name, const std::vector<std::uint64_t>& dims) {
  std::string wanted;
  std::size_t n = 1;
  for (const std::uint64_t d : dims) {
    wanted += fmt::format("{}{}", wanted.empty() ? "" : ", ", d);
    n *= d;
  }
  const std::string expected = fmt::format("{} [{}] in F32, F16 or BF16", dims.size() == 1 ? "vector" : "tensor", wanted);
  const StoredTensor* t = source.tensor(name);
  if (t == nullptr) return missing(source, name, expected);
  const bool wide = t->type == TensorType::F32, narrow = t->type == TensorType::F16 || t->type == TensorType::BF16;
  if (!(wide || narrow) || t->dims != dims || t->bytes != (wide ? 4u : 2u) * n) return misshaped(source, *t, expected);
  return t;
}

float* convert(const StoredTensor& t, OwnedFloats& owned) {
  const std::size_t n = t.bytes / (t.type == TensorType::F32 ? 4 : 2);
  auto floats = std::make_unique<float[]>(n);
  if (t.type == TensorType::F32) {
    std::memcpy(floats.get(), t.data, t.bytes);
  } else {
    for (std::size_t i = 0; i < n; ++i) {
      std::uint16_t stored = 0;
      std::memcpy(&stored, t.data + 2 * i, sizeof stored);
      floats[i] = t.type == TensorType::F16 ? kernels::half_to_float(stored) : std::bit_cast<float>(std::uint32_t{stored} << 16);
    }
  }
  return owned.emplace_back(std::move(floats)).get();
}

}  // namespace

Result<const float*> vector(const TensorSource& source, std::string_view name, std::uint32_t n, OwnedFloats& owned) {
  TROUPE_TRY(const StoredTensor* t, narrow_tensor(source, name, {n}));
  if (t->type == TensorType::F32) return reinterpret_cast<const float*>(t->data);
  return convert(*t, owned);
}

Result<float*> floats(const TensorSource& source, std::string_view name, const std::vector<std::uint64_t>& dims, OwnedFloats& owned) {
  TROUPE_TRY(const StoredTensor* t, narrow_tensor(source, name, dims));
  return convert(*t, owned);
}

}  // namespace troupe::device
