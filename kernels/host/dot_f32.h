// Dot products of unpacked F32 weight rows with F32 activations, order lanes16 (kernels.h). Pure; any thread.
#pragma once

#include <cstddef>

#include "kernels/host/target.h"

namespace troupe::kernels {

struct DotF32Tile {
  const float* w = nullptr;  // [n_rows], w_stride apart
  std::size_t w_stride = 0;
  std::size_t n_rows = 0;
  const float* x = nullptr;  // [n_tokens], x_stride apart
  std::size_t x_stride = 0;
  std::size_t n_tokens = 0;
  std::size_t cols = 0;  // a multiple of 16
  float* y = nullptr;    // y[t * y_stride + r] = (or +=, if add) w[r] . x[t]
  std::size_t y_stride = 0;
  bool add = false;
};

using DotF32 = void (*)(const DotF32Tile& tile);
DotF32 dot_f32(Target target);

}  // namespace troupe::kernels
