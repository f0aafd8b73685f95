// Dot products of F16 and BF16 weight rows as stored with F32 activations, order lanes16 (kernels.h): the weights turn into
// F32 in registers, so that for few tokens nothing is unpacked. The same bits as unpack_f32 and dot_f32, on every target.
// Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/host/target.h"
#include "kernels/kernels.h"

namespace troupe::kernels {

struct DotHalfTile {
  const std::uint8_t* w = nullptr;  // [n_rows][cols] halves, any alignment
  std::size_t n_rows = 0;
  const float* x = nullptr;  // [n_tokens], x_stride apart
  std::size_t x_stride = 0;
  std::size_t n_tokens = 0;
  std::size_t cols = 0;  // a multiple of 16
  float* y = nullptr;    // y[t * y_stride + r] = (or +=, if add) w[r] . x[t]
  std::size_t y_stride = 0;
  bool add = false;
};

using DotHalf = void (*)(const DotHalfTile& tile);
DotHalf dot_half(Format format, Target target);  // nullptr: the format is neither

// Up to so many tokens it is faster than to unpack the rows once.
inline constexpr std::size_t kMaxHalfTokens = 4;

}  // namespace troupe::kernels
