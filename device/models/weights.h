// Tensors of a GGUF file as the kernels' weights, with their shapes checked. Views: the file must outlive them.
#pragma once

#include <cstdint>
#include <string_view>

#include "device/models/gguf.h"
#include "kernels/kernels.h"
#include "messages/error.h"

namespace troupe::device {

// y = W x, rows = outputs. bad_file: missing or mis-shaped, naming tensor and expectation; unsupported: a format that
// the kernels do not read.
Result<kernels::Weight> matrix(const GgufFile& file, std::string_view name, std::uint32_t rows, std::uint32_t cols);

// An F32 vector of n elements, such as a norm's gains.
Result<const float*> vector(const GgufFile& file, std::string_view name, std::uint32_t n);

}  // namespace troupe::device
