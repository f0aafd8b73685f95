#include "kernels/host/dot_int8.h"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/host/simd.h"

// Each target has block_sums: the integer sums of the words (4 elements) K0 to K1 of block b, all 8 or a half, for T
// tokens from t0, as floats (they are exact: below 2^20).

namespace troupe::kernels {

namespace {

TROUPE_INLINE const std::uint8_t* weight_codes(const DotInt8Tile& a, std::size_t b) { return a.w.codes + b * 32 * kBundle; }
TROUPE_INLINE const std::int8_t* token_codes(const DotInt8Tile& a, std::size_t b, std::size_t t) { return a.x.codes + t * a.cols + b * 32; }
TROUPE_INLINE std::int32_t four_codes(const std::int8_t* x) {
  std::int32_t v;
  std::memcpy(&v, x, sizeof v);
  return v;
}

namespace portable {
template <bool Signed, int K0, int K1, int T>
TROUPE_INLINE void block_sums(const DotInt8Tile& a, std::size_t b, std::size_t t0, F32x16* out) {
  const std::uint8_t* w = weight_codes(a, b);
  for (std::size_t t = 0; t < T; ++t) {
    const std::int8_t* x = token_codes(a, b, t0 + t);
    std::int32_t sum[kBundle] = {};
    for (std::size_t i = 4 * K0; i < 4 * K1; ++i) {
      for (std::size_t r = 0; r < kBundle; ++r) {
        const std::uint8_t c = w[i / 4 * 4 * kBundle + 4 * r + i % 4];
        sum[r] += (Signed ? static_cast<std::int32_t>(static_cast<std::int8_t>(c)) : static_cast<std::int32_t>(c)) * x[i];
      }
    }
    for (std::size_t r = 0; r < kBundle; ++r) out[t][r] = static_cast<float>(sum[r]);
  }
}
#define TROUPE_DOT_TARGET
#include "kernels/host/dot_int8_body.inc"
#undef TROUPE_DOT_TARGET
}  // namespace portable

#if defined(__x86_64__)

namespace avx2 {
#define TROUPE_DOT_TARGET TROUPE_TARGET_AVX2
template <bool Signed, int K0, int K1, int T>
TROUPE_DOT_TARGET __attribute__((always_inline)) inline void block_sums(const DotInt8Tile& a, std::size_t b, std::size_t t0, F32x16* out) {
  const std::uint8_t* w = weight_codes(a, b);
  const std::int8_t* x = token_codes(a, b, t0);
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i sum[T][2];
  for (int t = 0; t < T; ++t) sum[t][0] = sum[t][1] = _mm256_setzero_si256();
  for (int k = K0; k < K1; ++k) {
    for (int h = 0; h < 2; ++h) {
      const __m256i wv = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + 64 * k + 32 * h));
      // No saturation in maddubs: |w| <= 128 and |x| <= 127, so 2 * 128 * 127 < 2^15; unsigned codes are below 16.
      const __m256i magnitude = Signed ? _mm256_abs_epi8(wv) : wv;
      for (int t = 0; t < T; ++t) {
        __m256i xv = _mm256_set1_epi32(four_codes(x + t * a.cols + 4 * k));
        if constexpr (Signed) xv = _mm256_sign_epi8(xv, wv);
        sum[t][h] = _mm256_add_epi32(sum[t][h], _mm256_madd_epi16(_mm256_maddubs_epi16(magnitude, xv), ones));
      }
    }
  }
  for (int t = 0; t < T; ++t) {
    const __m256 f[2] = {_mm256_cvtepi32_ps(sum[t][0]), _mm256_cvtepi32_ps(sum[t][1])};
    std::memcpy(&out[t], f, sizeof f);
  }
}
#include "kernels/host/dot_int8_body.inc"
#undef TROUPE_DOT_TARGET
}  // namespace avx2

namespace avx512 {
#define TROUPE_DOT_TARGET TROUPE_TARGET_AVX512
// dpbusd multiplies unsigned by signed: signed weights get 128 added, and 128 * (sum of the token's codes), which
// `offset` holds, is taken off again. Exact.
template <int K0, int K1>
TROUPE_INLINE std::int32_t offset(const DotInt8Tile& a, std::size_t b, std::size_t t) {
  const std::int32_t* o = a.x.offset + (t * (a.cols / 32) + b) * 2;
  return (K0 < 4 ? o[0] : 0) + (K1 > 4 ? o[1] : 0);
}
template <bool Signed, int K0, int K1, int T>
TROUPE_DOT_TARGET __attribute__((always_inline)) inline void block_sums(const DotInt8Tile& a, std::size_t b, std::size_t t0, F32x16* out) {
  const std::uint8_t* w = weight_codes(a, b);
  const std::int8_t* x = token_codes(a, b, t0);
  const __m512i flip = _mm512_set1_epi8(static_cast<char>(0x80));
  __m512i sum[T];
  for (int t = 0; t < T; ++t) sum[t] = Signed ? _mm512_set1_epi32(offset<K0, K1>(a, b, t0 + t)) : _mm512_setzero_si512();
#pragma GCC unroll 8
  for (int k = K0; k < K1; ++k) {
    __m512i wv = _mm512_loadu_si512(w + 64 * k);
    if constexpr (Signed) wv = _mm512_xor_si512(wv, flip);
    for (int t = 0; t < T; ++t) sum[t] = _mm512_dpbusd_epi32(sum[t], wv, _mm512_set1_epi32(four_codes(x + t * a.cols + 4 * k)));
  }
  for (int t = 0; t < T; ++t) {
    const __m512 f = _mm512_cvtepi32_ps(sum[t]);
    std::memcpy(&out[t], &f, sizeof f);
  }
}
#include "kernels/host/dot_int8_body.inc"
#undef TROUPE_DOT_TARGET
}  // namespace avx512

#endif

}  // namespace

DotInt8 dot_int8(Target target) {
#if defined(__x86_64__)
  return TROUPE_PICK(target, &portable::tile, &avx2::tile, &avx512::tile);
#else
  (void)target;
  return &portable::tile;
#endif
}

}  // namespace troupe::kernels
