// Dot products of up to 16 weight rows unpacked to 8-bit codes, a lane each, with activations quantized to 8 bits,
// order blocks32 (kernels.h). The integer sums are exact on every target, so the targets agree bit for bit. Pure; any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/host/quantize.h"
#include "kernels/host/rows.h"
#include "kernels/host/target.h"

namespace troupe::kernels {

struct DotInt8Tile {
  CodesBundle w;
  QuantizedRow x;          // of token 0; token t: codes t * cols further, scale and sum t * cols / 32, offset twice that
  std::size_t n_rows = 0;  // 1 to 16
  std::size_t n_tokens = 0;
  std::size_t cols = 0;       // a multiple of 32
  bool signed_codes = false;  // of the weights
  bool has_min = false;       // of the weights
  bool half_blocks = false;   // the weights have a scale for each 16 elements (signed, without minimum)
  float* y = nullptr;         // y[t * y_stride + r] = (or +=, if add) w[r] . x[t]
  std::size_t y_stride = 0;
  bool add = false;
};

using DotInt8 = void (*)(const DotInt8Tile& tile);
DotInt8 dot_int8(Target target);

}  // namespace troupe::kernels
