#include "kernels/host/rmsnorm.h"

#include <cmath>

#include "kernels/host/simd.h"

namespace troupe::kernels {

namespace {

TROUPE_INLINE void norm(const float* x, const float* gain, float* y, std::size_t width, float eps) {
  F32x16 sum{};
  std::size_t i = 0;
  for (; i + 16 <= width; i += 16) {
    const F32x16 v = load16(x + i);
    sum += v * v;
  }
  if (i < width) {
    const F32x16 v = load_some(x + i, width - i);
    sum += v * v;
  }
  const float scale = 1.0f / std::sqrt(fold16(sum) / static_cast<float>(width) + eps);
  for (i = 0; i + 16 <= width; i += 16) store16(y + i, load16(x + i) * scale * load16(gain + i));
  for (; i < width; ++i) y[i] = x[i] * scale * gain[i];
}

TROUPE_SIMD_TARGETS(norm, (const float* x, const float* gain, float* y, std::size_t width, float eps), norm(x, gain, y, width, eps))

}  // namespace

RmsNorm rms_norm(Target target) { return norm_pick(target); }

}  // namespace troupe::kernels
