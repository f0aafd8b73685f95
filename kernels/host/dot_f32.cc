#include "kernels/host/dot_f32.h"

#include "kernels/host/simd.h"

namespace troupe::kernels {

namespace {

template <int R, int T>
TROUPE_INLINE void dots(const DotF32Tile& a, std::size_t r0, std::size_t t0) {
  F32x16 acc[R][T] = {};
  const float* w = a.w + r0 * a.w_stride;
  const float* x = a.x + t0 * a.x_stride;
  for (std::size_t i = 0; i < a.cols; i += 16) {
    F32x16 xv[T];
    for (int t = 0; t < T; ++t) xv[t] = load16(x + t * a.x_stride + i);
    for (int r = 0; r < R; ++r) {
      const F32x16 wv = load16(w + r * a.w_stride + i);
      for (int t = 0; t < T; ++t) acc[r][t] += wv * xv[t];
    }
  }
  for (int t = 0; t < T; ++t) {
    for (int r = 0; r < R; ++r) {
      float& y = a.y[(t0 + t) * a.y_stride + r0 + r];
      const float dot = fold16(acc[r][t]);
      y = a.add ? y + dot : dot;
    }
  }
}

template <int R>
TROUPE_INLINE void rows(const DotF32Tile& a, std::size_t r) {
  std::size_t t = 0;
  for (; t + 4 <= a.n_tokens; t += 4) dots<R, 4>(a, r, t);
  for (; t < a.n_tokens; ++t) dots<R, 1>(a, r, t);
}

TROUPE_INLINE void tile(const DotF32Tile& a) {
  std::size_t r = 0;
  for (; r + 4 <= a.n_rows; r += 4) rows<4>(a, r);
  for (; r < a.n_rows; ++r) rows<1>(a, r);
}

TROUPE_SIMD_TARGETS(dot_f32, (const DotF32Tile& a), tile(a))

}  // namespace

DotF32 dot_f32(Target target) { return dot_f32_pick(target); }

}  // namespace troupe::kernels
