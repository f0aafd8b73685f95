#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/host/rows.h"
#include "kernels/host/simd.h"

namespace troupe::kernels {

namespace {

typedef std::uint16_t U16x16 __attribute__((vector_size(32)));

TROUPE_INLINE U32x16 load_words(const std::uint8_t* p) {
  U16x16 h;
  std::memcpy(&h, p, sizeof h);
  return __builtin_convertvector(h, U32x16);
}

TROUPE_INLINE void halves(const void* row, std::size_t cols, float* out) {
  const auto* p = static_cast<const std::uint8_t*>(row);
  for (std::size_t i = 0; i < cols; i += 16) store16(out + i, half16(load_words(p + 2 * i)));
}

// The upper half of an F32.
TROUPE_INLINE void brains(const void* row, std::size_t cols, float* out) {
  const auto* p = static_cast<const std::uint8_t*>(row);
  for (std::size_t i = 0; i < cols; i += 16) store16(out + i, floats16((I32x16)(load_words(p + 2 * i) << 16)));
}

void f32_from_f16_portable(const void* row, std::size_t cols, float* out) { halves(row, cols, out); }

#if defined(__x86_64__)
// One instruction for what half16 does in a dozen; the same bits, also of a NaN.
TROUPE_TARGET_AVX2 void f32_from_f16_avx2(const void* row, std::size_t cols, float* out) {
  const auto* p = static_cast<const __m128i*>(row);
  for (std::size_t i = 0; i < cols; i += 8) _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128(p + i / 8)));
}
TROUPE_TARGET_AVX512 void f32_from_f16_avx512(const void* row, std::size_t cols, float* out) {
  const auto* p = static_cast<const __m256i*>(row);
  for (std::size_t i = 0; i < cols; i += 16) _mm512_storeu_ps(out + i, _mm512_cvtph_ps(_mm256_loadu_si256(p + i / 16)));
}
#endif

TROUPE_SIMD_TARGETS(f32_from_bf16, (const void* row, std::size_t cols, float* out), brains(row, cols, out))

}  // namespace

UnpackF32 unpack_f32_f16(Target target) {
#if defined(__x86_64__)
  return TROUPE_PICK(target, &f32_from_f16_portable, &f32_from_f16_avx2, &f32_from_f16_avx512);
#else
  (void)target;
  return &f32_from_f16_portable;
#endif
}
UnpackF32 unpack_f32_bf16(Target target) { return f32_from_bf16_pick(target); }

}  // namespace troupe::kernels
