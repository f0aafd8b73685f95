#include "kernels/host/rows.h"
#include "kernels/host/simd.h"

namespace troupe::kernels {

namespace {

constexpr std::size_t kBlockBytes = 20;

struct ScalesAndMins {
  F32x16 d, m;
};

// Of up to 16 blocks; 0 for those past the end.
TROUPE_INLINE ScalesAndMins scales(const std::uint8_t* blocks, std::size_t n) {
  std::uint32_t raw[16] = {};
  for (std::size_t i = 0; i < n; ++i) std::memcpy(&raw[i], blocks + i * kBlockBytes, 4);
  U32x16 v;
  std::memcpy(&v, raw, sizeof v);
  return {half16(v & 0xffffu), half16(v >> 16)};
}

typedef std::uint8_t U8x16 __attribute__((vector_size(16)));

TROUPE_INLINE void to_f32(const void* row, std::size_t cols, float* out) {
  const auto* p = static_cast<const std::uint8_t*>(row);
  const std::size_t blocks = cols / 32;
  for (std::size_t b0 = 0; b0 < blocks; b0 += 16) {
    const std::size_t n = blocks - b0 < 16 ? blocks - b0 : 16;
    const ScalesAndMins s = scales(p + b0 * kBlockBytes, n);
    for (std::size_t i = 0; i < n; ++i) {
      U8x16 q;
      std::memcpy(&q, p + (b0 + i) * kBlockBytes + 4, sizeof q);
      float* o = out + (b0 + i) * 32;
      store16(o, __builtin_convertvector(__builtin_convertvector(q & 15, I32x16), F32x16) * s.d[i] + s.m[i]);
      store16(o + 16, __builtin_convertvector(__builtin_convertvector(q >> 4, I32x16), F32x16) * s.d[i] + s.m[i]);
    }
  }
}

TROUPE_INLINE void to_codes(const void* row, std::size_t cols, const CodesRow& out) {
  const auto* p = static_cast<const std::uint8_t*>(row);
  const std::size_t blocks = cols / 32, padded = round_up(blocks, 2);
  for (std::size_t b = 0; b < blocks; ++b) {
    U8x16 q;
    std::memcpy(&q, p + b * kBlockBytes + 4, sizeof q);
    const U8x16 low = q & 15, high = q >> 4;
    std::memcpy(out.codes + b * 32, &low, 16);
    std::memcpy(out.codes + b * 32 + 16, &high, 16);
  }
  if (padded != blocks) std::memset(out.codes + blocks * 32, 0, 32);
  for (std::size_t b = 0; b < padded; b += 16) {
    const std::size_t n = blocks - b < 16 ? blocks - b : 16;
    const ScalesAndMins s = scales(p + b * kBlockBytes, n);
    store16(out.min + b, s.m);
    for (std::size_t i = 0; i < (padded - b < 16 ? padded - b : 16); i += 2) {
      const float x = s.d[i], y = s.d[i + 1];
      const F32x16 pair = {x, x, x, x, x, x, x, x, y, y, y, y, y, y, y, y};
      store16(out.scale8 + (b + i) * 8, pair);
    }
  }
}

TROUPE_SIMD_TARGETS(f32_from_q4_1, (const void* row, std::size_t cols, float* out), to_f32(row, cols, out))
TROUPE_SIMD_TARGETS(codes_from_q4_1, (const void* row, std::size_t cols, const CodesRow& out), to_codes(row, cols, out))

}  // namespace

UnpackF32 unpack_f32_q4_1(Target target) { return f32_from_q4_1_pick(target); }
UnpackCodes unpack_codes_q4_1(Target target) { return codes_from_q4_1_pick(target); }

}  // namespace troupe::kernels
