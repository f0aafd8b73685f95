#include "kernels/host/dot_half.h"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/host/simd.h"

// Each target has words_f16 and words_bf16: sixteen stored halves as floats, the same bits as half_to_float; and how many
// rows a tile of one, two or four tokens has, by the accumulators that its registers hold (0: there is no such tile).

namespace troupe::kernels {

namespace {

typedef std::uint16_t U16x16 __attribute__((vector_size(32)));

// The upper half of an F32; the compiler has an instruction for each step.
TROUPE_INLINE F32x16 words_bf16(const std::uint8_t* p) {
  U16x16 h;
  std::memcpy(&h, p, sizeof h);
  return floats16((I32x16)(__builtin_convertvector(h, U32x16) << 16));
}

namespace portable {
#define TROUPE_DOT_TARGET
constexpr int kRows1 = 2, kRows2 = 1, kRows4 = 0;
TROUPE_INLINE F32x16 words_f16(const std::uint8_t* p) {
  U16x16 h;
  std::memcpy(&h, p, sizeof h);
  return half16(__builtin_convertvector(h, U32x16));
}
#include "kernels/host/dot_half_body.inc"
#undef TROUPE_DOT_TARGET
}  // namespace portable

#if defined(__x86_64__)

namespace avx2 {
#define TROUPE_DOT_TARGET TROUPE_TARGET_AVX2
constexpr int kRows1 = 4, kRows2 = 2, kRows4 = 0;
TROUPE_DOT_TARGET __attribute__((always_inline)) inline F32x16 words_f16(const std::uint8_t* p) {
  __m256 v[2];
  for (int i = 0; i < 2; ++i) v[i] = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p) + i));
  F32x16 out;
  std::memcpy(&out, v, sizeof out);
  return out;
}
#include "kernels/host/dot_half_body.inc"
#undef TROUPE_DOT_TARGET
}  // namespace avx2

namespace avx512 {
#define TROUPE_DOT_TARGET TROUPE_TARGET_AVX512
constexpr int kRows1 = 8, kRows2 = 8, kRows4 = 4;
TROUPE_DOT_TARGET __attribute__((always_inline)) inline F32x16 words_f16(const std::uint8_t* p) {
  return (F32x16)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
#include "kernels/host/dot_half_body.inc"
#undef TROUPE_DOT_TARGET
}  // namespace avx512

#endif

}  // namespace

DotHalf dot_half(Format format, Target target) {
  if (format != Format::f16 && format != Format::bf16) return nullptr;
  const bool bf16 = format == Format::bf16;
#if defined(__x86_64__)
  return bf16 ? TROUPE_PICK(target, &portable::tile<true>, &avx2::tile<true>, &avx512::tile<true>)
              : TROUPE_PICK(target, &portable::tile<false>, &avx2::tile<false>, &avx512::tile<false>);
#else
  (void)target;
  return bf16 ? &portable::tile<true> : &portable::tile<false>;
#endif
}

}  // namespace troupe::kernels
