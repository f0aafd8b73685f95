// Sixteen floats at a time, by the compiler's vector types: the same source compiled for each target does the same
// operations in the same order (-ffp-contract=off), hence the same bits. Everything here is inlined into functions
// that carry a target attribute; TROUPE_SIMD_TARGETS makes those from one body.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/host/target.h"

#define TROUPE_INLINE [[gnu::always_inline]] inline

#if defined(__x86_64__)
#define TROUPE_TARGET_AVX2 __attribute__((target("avx2,f16c")))
#define TROUPE_TARGET_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,f16c")))
#define TROUPE_PICK(target, portable_fn, avx2_fn, avx512_fn) \
  ((target) == Target::avx512 ? (avx512_fn) : (target) == Target::avx2 ? (avx2_fn) : (portable_fn))
// name_portable, name_avx2, name_avx512 with the body `expr`, and name##_pick(target).
#define TROUPE_SIMD_TARGETS(name, params, expr)            \
  void name##_portable params { expr; }                    \
  TROUPE_TARGET_AVX2 void name##_avx2 params { expr; }     \
  TROUPE_TARGET_AVX512 void name##_avx512 params { expr; } \
  auto name##_pick(Target target) { return TROUPE_PICK(target, &name##_portable, &name##_avx2, &name##_avx512); }
#else
#define TROUPE_SIMD_TARGETS(name, params, expr) \
  void name##_portable params { expr; }         \
  auto name##_pick(Target) { return &name##_portable; }
#endif

namespace troupe::kernels {

typedef float F32x16 __attribute__((vector_size(64)));
typedef std::int32_t I32x16 __attribute__((vector_size(64)));
typedef std::uint32_t U32x16 __attribute__((vector_size(64)));

TROUPE_INLINE F32x16 load16(const float* p) {
  F32x16 v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
TROUPE_INLINE void store16(float* p, F32x16 v) { std::memcpy(p, &v, sizeof v); }
TROUPE_INLINE F32x16 splat16(float x) { return x - F32x16{}; }
TROUPE_INLINE I32x16 bits16(F32x16 v) {
  I32x16 r;
  std::memcpy(&r, &v, sizeof r);
  return r;
}
TROUPE_INLINE F32x16 floats16(I32x16 v) {
  F32x16 r;
  std::memcpy(&r, &v, sizeof r);
  return r;
}
// The first n (< 16) floats at p; the rest 0.
TROUPE_INLINE F32x16 load_some(const float* p, std::size_t n) {
  F32x16 v{};
  std::memcpy(&v, p, n * sizeof(float));
  return v;
}

// Sixteen halves (in the low 16 bits) to floats; the same bits as half_to_float.
TROUPE_INLINE F32x16 half16(U32x16 h) {
  const U32x16 sign = (h & 0x8000u) << 16, rest = (h & 0x7fffu) << 13;
  const U32x16 magnitude = (U32x16)bits16(floats16((I32x16)rest) * 0x1p112f);
  const U32x16 special = rest | 0x7f800000u | ((h & 0x3ffu) != 0u ? U32x16{} + 0x400000u : U32x16{});
  return floats16((I32x16)(sign | ((h & 0x7c00u) == 0x7c00u ? special : magnitude)));
}

// Folds 16 lanes: +8, +4, +2, +1 (the end of `lanes16`).
TROUPE_INLINE float fold16(F32x16 v) {
  typedef float F32x8 __attribute__((vector_size(32)));
  typedef float F32x4 __attribute__((vector_size(16)));
  F32x8 h[2];
  std::memcpy(h, &v, sizeof v);
  const F32x8 a = h[0] + h[1];
  F32x4 q[2];
  std::memcpy(q, &a, sizeof a);
  const F32x4 b = q[0] + q[1];
  return (b[0] + b[2]) + (b[1] + b[3]);
}

// e^x to about 2 units in the last place: 2^n * e^r, |r| <= ln2 / 2, with the polynomial of Cephes' expf.
// 0 below -87.33, infinity above 88.37, NaN stays NaN.
TROUPE_INLINE F32x16 exp16(F32x16 x) {
  const F32x16 low = splat16(-87.33f), high = splat16(88.37f), magic = splat16(12582912.0f);
  const I32x16 under = x<low, over = x> high;
  F32x16 c = under ? low : x;
  c = over ? high : c;
  const F32x16 t = c * 1.44269504088896341f + magic;
  const F32x16 n = t - magic;
  const F32x16 r = (c - n * 0.693359375f) - n * -2.12194440e-4f;
  F32x16 y = splat16(1.9875691500E-4f);
  y = y * r + 1.3981999507E-3f;
  y = y * r + 8.3334519073E-3f;
  y = y * r + 4.1665795894E-2f;
  y = y * r + 1.6666665459E-1f;
  y = y * r + 5.0000001201E-1f;
  y = (y * (r * r) + r) + 1.0f;
  const I32x16 scale = (bits16(t) - 0x4B400000 + 127) << 23;
  y = y * floats16(scale);
  y = under ? F32x16{} : y;
  return over ? splat16(__builtin_inff()) : y;
}

}  // namespace troupe::kernels
