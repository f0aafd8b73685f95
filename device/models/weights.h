// A model's tensors as the kernels' weights, with their shapes checked. Matrices are views: the source must outlive them.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "device/models/tensor_source.h"
#include "kernels/kernels.h"
#include "messages/error.h"

namespace troupe::device {

// Vectors that were converted to F32.
using OwnedFloats = std::vector<std::unique_ptr<float[]>>;

// y = W x, rows = outputs. bad_file: missing or mis-shaped, naming tensor and expectation; unsupported: a format that
// the kernels do not read, or columns that are no multiple of 32.
Result<kernels::Weight> matrix(const TensorSource& source, std::string_view name, std::uint32_t rows, std::uint32_t cols);

// A vector of n elements in F32, such as a norm's gains: a view, or converted from F16 or BF16 into `owned`.
Result<const float*> vector(const TensorSource& source, std::string_view name, std::uint32_t n, OwnedFloats& owned);

// A small tensor's elements in F32, as they lie in the file, always converted into `owned`: for whoever changes them.
// Errors as vector().
Result<float*> floats(const TensorSource& source, std::string_view name, const std::vector<std::uint64_t>& dims, OwnedFloats& owned);

}  // namespace troupe::device
