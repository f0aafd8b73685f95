#include "kernels/host/silu_mul.h"

#include "kernels/host/simd.h"

namespace troupe::kernels {

namespace {

TROUPE_INLINE F32x16 one(F32x16 g, F32x16 u) { return (g / (1.0f + exp16(-g))) * u; }

TROUPE_INLINE void all(float* gate, const float* up, std::size_t n) {
  std::size_t i = 0;
  for (; i + 16 <= n; i += 16) store16(gate + i, one(load16(gate + i), load16(up + i)));
  if (i < n) {
    const F32x16 v = one(load_some(gate + i, n - i), load_some(up + i, n - i));
    std::memcpy(gate + i, &v, (n - i) * sizeof(float));
  }
}

TROUPE_SIMD_TARGETS(silu, (float* gate, const float* up, std::size_t n), all(gate, up, n))

}  // namespace

SiluMul silu_mul(Target target) { return silu_pick(target); }

}  // namespace troupe::kernels
