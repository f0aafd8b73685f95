// Dot products of weight rows unpacked to 8-bit codes with activations quantized to 8 bits, order blocks32
// (kernels.h). The integer sums are exact on every target, so the targets agree bit for bit. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/host/quantize.h"
#include "kernels/host/rows.h"
#include "kernels/host/target.h"

namespace troupe::kernels {

struct DotInt8Tile {
  CodesRow w;         // of row 0; row r lies r times the strides further, as below
  QuantizedRow x;     // of token 0; likewise
  std::size_t n_rows = 0;
  std::size_t n_tokens = 0;
  std::size_t cols = 0;         // a multiple of 32, the same for both
  bool signed_codes = false;    // of the weights
  bool has_min = false;         // of the weights
  float* y = nullptr;           // y[t * y_stride + r] = (or +=, if add) w[r] . x[t]
  std::size_t y_stride = 0;
  bool add = false;
};

// Elements between rows of each array, for both sides.
inline std::size_t codes_stride(std::size_t cols) { return round_up(cols, 64); }
inline std::size_t scale8_stride(std::size_t cols) { return round_up(cols, 64) / 4; }
inline std::size_t block_stride(std::size_t cols) { return round_up(cols / 32, 16); }

using DotInt8 = void (*)(const DotInt8Tile& tile);
DotInt8 dot_int8(Target target);

}  // namespace troupe::kernels
