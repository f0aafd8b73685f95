#include "kernels/host/dot_int8.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/host/simd.h"

namespace troupe::kernels {

namespace {

// Tokens in one pass over a row: enough to hide the latency of the additions, few enough to stay in registers.
constexpr int kTokens = 4;

TROUPE_INLINE void finish(const DotInt8Tile& a, std::size_t r, std::size_t t, F32x16 acc) {
  const std::size_t blocks = block_stride(a.cols);
  F32x16 low{};
  if (a.has_min) {
    const float* m = a.w.min + r * blocks;
    const float* s = a.x.sum + t * blocks;
    for (std::size_t b = 0; b < blocks; b += 16) low += load16(m + b) * load16(s + b);
    acc += low;
  }
  float& y = a.y[t * a.y_stride + r];
  const float dot = fold16(acc);
  y = a.add ? y + dot : dot;
}

template <bool Signed> void dots_portable(const DotInt8Tile& a, std::size_t r, std::size_t t) {
  const std::uint8_t* w = a.w.codes + r * codes_stride(a.cols);
  const std::int8_t* x = a.x.codes + t * codes_stride(a.cols);
  const float* dw = a.w.scale8 + r * scale8_stride(a.cols);
  const float* dx = a.x.scale8 + t * scale8_stride(a.cols);
  float lanes[16] = {};
  for (std::size_t i = 0; i < codes_stride(a.cols); i += 64) {
    for (std::size_t j = 0; j < 16; ++j) {
      std::int32_t sum = 0;
      for (std::size_t k = 0; k < 4; ++k) {
        const std::uint8_t c = w[i + 4 * j + k];
        sum += (Signed ? static_cast<std::int32_t>(static_cast<std::int8_t>(c)) : static_cast<std::int32_t>(c)) * x[i + 4 * j + k];
      }
      lanes[j] += static_cast<float>(sum) * (dw[i / 4 + j] * dx[i / 4 + j]);
    }
  }
  finish(a, r, t, load16(lanes));
}

void tile_portable(const DotInt8Tile& a) {
  for (std::size_t r = 0; r < a.n_rows; ++r) {
    for (std::size_t t = 0; t < a.n_tokens; ++t) a.signed_codes ? dots_portable<true>(a, r, t) : dots_portable<false>(a, r, t);
  }
}

#if defined(__x86_64__)

// The two halves of 16 lanes, for the first and the second block of a pair.
template <bool Signed, int T> TROUPE_TARGET_AVX2 inline void dots_avx2(const DotInt8Tile& a, std::size_t r, std::size_t t0) {
  const std::size_t codes = codes_stride(a.cols), scales = scale8_stride(a.cols);
  const std::uint8_t* w = a.w.codes + r * codes;
  const float* dw = a.w.scale8 + r * scales;
  const std::int8_t* x = a.x.codes + t0 * codes;
  const float* dx = a.x.scale8 + t0 * scales;
  __m256 acc[T][2];
  for (int t = 0; t < T; ++t) acc[t][0] = acc[t][1] = _mm256_setzero_ps();
  const __m256i ones = _mm256_set1_epi16(1);
  for (std::size_t i = 0; i < codes; i += 64) {
    for (int h = 0; h < 2; ++h) {
      const __m256i wv = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + i + 32 * h));
      const __m256 dwv = _mm256_loadu_ps(dw + i / 4 + 8 * h);
      // No saturation in maddubs: |w| <= 128 and |x| <= 127, or w <= 15; 2 * 128 * 127 < 2^15.
      const __m256i magnitude = Signed ? _mm256_abs_epi8(wv) : wv;
      for (int t = 0; t < T; ++t) {
        __m256i xv = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + t * codes + i + 32 * h));
        if constexpr (Signed) xv = _mm256_sign_epi8(xv, wv);
        const __m256i sum = _mm256_madd_epi16(_mm256_maddubs_epi16(magnitude, xv), ones);
        const __m256 d = _mm256_mul_ps(dwv, _mm256_loadu_ps(dx + t * scales + i / 4 + 8 * h));
        acc[t][h] = _mm256_add_ps(acc[t][h], _mm256_mul_ps(_mm256_cvtepi32_ps(sum), d));
      }
    }
  }
  for (int t = 0; t < T; ++t) {
    F32x16 lanes;
    std::memcpy(&lanes, acc[t], sizeof lanes);
    finish(a, r, t0 + t, lanes);
  }
}

template <bool Signed> TROUPE_TARGET_AVX2 inline void rows_avx2(const DotInt8Tile& a) {
  for (std::size_t r = 0; r < a.n_rows; ++r) {
    std::size_t t = 0;
    for (; t + kTokens <= a.n_tokens; t += kTokens) dots_avx2<Signed, kTokens>(a, r, t);
    for (; t < a.n_tokens; ++t) dots_avx2<Signed, 1>(a, r, t);
  }
}

TROUPE_TARGET_AVX2 void tile_avx2(const DotInt8Tile& a) { a.signed_codes ? rows_avx2<true>(a) : rows_avx2<false>(a); }

// dpbusd multiplies unsigned by signed: signed weights get 128 added, and 128 * (sum of the activations' codes), which
// `offset` holds, is taken off again. Exact.
template <bool Signed, int R, int T> TROUPE_TARGET_AVX512 inline void dots_avx512(const DotInt8Tile& a, std::size_t r0, std::size_t t0) {
  const std::size_t codes = codes_stride(a.cols), scales = scale8_stride(a.cols);
  const std::uint8_t* w = a.w.codes + r0 * codes;
  const float* dw = a.w.scale8 + r0 * scales;
  const std::int8_t* x = a.x.codes + t0 * codes;
  const float* dx = a.x.scale8 + t0 * scales;
  const std::int32_t* offset = a.x.offset + t0 * scales;
  __m512 acc[R][T];
  for (int r = 0; r < R; ++r) {
    for (int t = 0; t < T; ++t) acc[r][t] = _mm512_setzero_ps();
  }
  const __m512i flip = _mm512_set1_epi8(static_cast<char>(0x80));
  for (std::size_t i = 0; i < codes; i += 64) {
    __m512i wv[R];
    __m512 dwv[R];
    for (int r = 0; r < R; ++r) {
      wv[r] = _mm512_loadu_si512(w + r * codes + i);
      if constexpr (Signed) wv[r] = _mm512_xor_si512(wv[r], flip);
      dwv[r] = _mm512_loadu_ps(dw + r * scales + i / 4);
    }
    for (int t = 0; t < T; ++t) {
      const __m512i xv = _mm512_loadu_si512(x + t * codes + i);
      const __m512 dxv = _mm512_loadu_ps(dx + t * scales + i / 4);
      __m512i start = _mm512_setzero_si512();
      if constexpr (Signed) start = _mm512_loadu_si512(offset + t * scales + i / 4);
      for (int r = 0; r < R; ++r) {
        const __m512 sum = _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(start, wv[r], xv));
        acc[r][t] = _mm512_add_ps(acc[r][t], _mm512_mul_ps(sum, _mm512_mul_ps(dwv[r], dxv)));
      }
    }
  }
  for (int t = 0; t < T; ++t) {
    for (int r = 0; r < R; ++r) {
      F32x16 lanes;
      std::memcpy(&lanes, &acc[r][t], sizeof lanes);
      finish(a, r0 + r, t0 + t, lanes);
    }
  }
}

template <bool Signed, int R> TROUPE_TARGET_AVX512 inline void rows_avx512(const DotInt8Tile& a, std::size_t r) {
  std::size_t t = 0;
  for (; t + kTokens <= a.n_tokens; t += kTokens) dots_avx512<Signed, R, kTokens>(a, r, t);
  for (; t < a.n_tokens; ++t) dots_avx512<Signed, R, 1>(a, r, t);
}

template <bool Signed> TROUPE_TARGET_AVX512 inline void all_avx512(const DotInt8Tile& a) {
  std::size_t r = 0;
  for (; r + 2 <= a.n_rows; r += 2) rows_avx512<Signed, 2>(a, r);
  for (; r < a.n_rows; ++r) rows_avx512<Signed, 1>(a, r);
}

TROUPE_TARGET_AVX512 void tile_avx512(const DotInt8Tile& a) { a.signed_codes ? all_avx512<true>(a) : all_avx512<false>(a); }

#endif

}  // namespace

#if defined(__x86_64__)
DotInt8 dot_int8(Target target) { return TROUPE_PICK(target, &tile_portable, &tile_avx2, &tile_avx512); }
#else
DotInt8 dot_int8(Target) { return &tile_portable; }
#endif

}  // namespace troupe::kernels
