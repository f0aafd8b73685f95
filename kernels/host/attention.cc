#include "kernels/host/attention.h"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/host/simd.h"

namespace troupe::kernels {

namespace {

namespace portable {
TROUPE_INLINE F32x16 load_half(const std::uint16_t* p) {
  typedef std::uint16_t U16x16 __attribute__((vector_size(32)));
  U16x16 h;
  std::memcpy(&h, p, sizeof h);
  return half16(__builtin_convertvector(h, U32x16));
}
#define TROUPE_ATTENTION_TARGET
#define TROUPE_ATTENTION_CHUNKS 1
#define TROUPE_LOAD_HALF(p) load_half(p)
#include "kernels/host/attention_body.inc"
#undef TROUPE_ATTENTION_TARGET
#undef TROUPE_ATTENTION_CHUNKS
#undef TROUPE_LOAD_HALF
}  // namespace portable

#if defined(__x86_64__)

namespace avx2 {
TROUPE_TARGET_AVX2 inline F32x16 load_half(const std::uint16_t* p) {
  const __m256 h[2] = {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
                       _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
  F32x16 v;
  std::memcpy(&v, h, sizeof v);
  return v;
}
#define TROUPE_ATTENTION_TARGET TROUPE_TARGET_AVX2
#define TROUPE_ATTENTION_CHUNKS 1
#define TROUPE_LOAD_HALF(p) load_half(p)
#include "kernels/host/attention_body.inc"
#undef TROUPE_ATTENTION_TARGET
#undef TROUPE_ATTENTION_CHUNKS
#undef TROUPE_LOAD_HALF
}  // namespace avx2

namespace avx512 {
TROUPE_TARGET_AVX512 inline F32x16 load_half(const std::uint16_t* p) {
  const __m512 h = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  F32x16 v;
  std::memcpy(&v, &h, sizeof v);
  return v;
}
#define TROUPE_ATTENTION_TARGET TROUPE_TARGET_AVX512
#define TROUPE_ATTENTION_CHUNKS 4
#define TROUPE_LOAD_HALF(p) load_half(p)
#include "kernels/host/attention_body.inc"
#undef TROUPE_ATTENTION_TARGET
#undef TROUPE_ATTENTION_CHUNKS
#undef TROUPE_LOAD_HALF
}  // namespace avx512

#endif

}  // namespace

Attention attention(Target target, bool half) {
#if defined(__x86_64__)
  if (target == Target::avx512) return half ? &avx512::attend<std::uint16_t> : &avx512::attend<float>;
  if (target == Target::avx2) return half ? &avx2::attend<std::uint16_t> : &avx2::attend<float>;
#else
  (void)target;
#endif
  return half ? &portable::attend<std::uint16_t> : &portable::attend<float>;
}

}  // namespace troupe::kernels
