// Activations in 8 bits, blocks of 32: scale = max|x| / 127, code = nearest even of x / scale. A block whose largest
// magnitude is below 1e-30 is all zero; one with a NaN or an infinity gets scale NaN, so that what it meets is NaN.
// Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/host/target.h"

namespace troupe::kernels {

// One row.
struct QuantizedRow {
  std::int8_t* codes = nullptr;    // [cols]
  float* scale = nullptr;          // [cols / 32]
  std::int32_t* offset = nullptr;  // [cols / 16]: -128 * sum of the codes of a block's halves (for signed weights)
  float* sum = nullptr;            // [cols / 32]: scale * sum of the block's codes
};

using Quantize = void (*)(const float* x, std::size_t cols, const QuantizedRow& out);
Quantize quantize(Target target);

}  // namespace troupe::kernels
