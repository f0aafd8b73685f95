#include "kernels/host/quantize.h"

#include "kernels/host/simd.h"

namespace troupe::kernels {

namespace {

typedef std::int8_t I8x16 __attribute__((vector_size(16)));

TROUPE_INLINE std::int32_t largest(I32x16 v) {
  std::int32_t m = v[0];
  for (int i = 1; i < 16; ++i) m = v[i] > m ? v[i] : m;
  return m;
}

TROUPE_INLINE void quantize_row(const float* x, std::size_t cols, const QuantizedRow& out) {
  const std::size_t blocks = cols / 32;
  const F32x16 magic = splat16(12582912.0f);  // adding 1.5 * 2^23 rounds to nearest even
  for (std::size_t b = 0; b < blocks; ++b) {
    const F32x16 v[2] = {load16(x + b * 32), load16(x + b * 32 + 16)};
    // Magnitudes compare as their bits do, and a NaN is the largest of all.
    const I32x16 a0 = bits16(v[0]) & 0x7fffffff, a1 = bits16(v[1]) & 0x7fffffff;
    const std::int32_t top = largest(a0 > a1 ? a0 : a1);
    float amax;
    std::memcpy(&amax, &top, sizeof amax);
    float d = amax / 127.0f, inverse = 127.0f / amax;
    if (top >= 0x7f800000) d = __builtin_nanf(""), inverse = 0.0f;
    if (amax < 1e-30f) d = 0.0f, inverse = 0.0f;
    std::int8_t* q = out.codes + b * 32;
    for (int h = 0; h < 2; ++h) {
      I32x16 codes = bits16(v[h] * inverse + magic) - 0x4B400000;
      if (inverse == 0.0f) codes = I32x16{};
      const I8x16 narrow = __builtin_convertvector(codes, I8x16);
      std::memcpy(q + 16 * h, &narrow, sizeof narrow);
    }
    std::int32_t total[2] = {};
    for (int i = 0; i < 16; ++i) total[0] += q[i], total[1] += q[16 + i];
    out.scale[b] = d;
    out.offset[2 * b] = -128 * total[0];
    out.offset[2 * b + 1] = -128 * total[1];
    out.sum[b] = d * static_cast<float>(total[0] + total[1]);
  }
}

TROUPE_SIMD_TARGETS(quantize_row, (const float* x, std::size_t cols, const QuantizedRow& out), quantize_row(x, cols, out))

}  // namespace

Quantize quantize(Target target) { return quantize_row_pick(target); }

}  // namespace troupe::kernels
