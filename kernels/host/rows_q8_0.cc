#include "kernels/host/half.h"
#include "kernels/host/rows.h"
#include "kernels/host/simd.h"

namespace troupe::kernels {

namespace {

constexpr std::size_t kBlockBytes = 34;

// Scales of up to 16 blocks; 0 for those past the end.
TROUPE_INLINE F32x16 scales(const std::uint8_t* blocks, std::size_t n) {
  std::uint32_t raw[16] = {};
  for (std::size_t i = 0; i < n; ++i) {
    std::uint16_t h;
    std::memcpy(&h, blocks + i * kBlockBytes, 2);
    raw[i] = h;
  }
  U32x16 v;
  std::memcpy(&v, raw, sizeof v);
  return half16(v);
}

TROUPE_INLINE void to_f32(const void* row, std::size_t cols, float* out) {
  const auto* p = static_cast<const std::uint8_t*>(row);
  for (std::size_t b = 0; b < cols / 32; ++b, p += kBlockBytes) {
    std::uint16_t h;
    std::memcpy(&h, p, 2);
    const float d = half_to_float(h);
    typedef std::int8_t I8x16 __attribute__((vector_size(16)));
    for (int half = 0; half < 2; ++half) {
      I8x16 q;
      std::memcpy(&q, p + 2 + 16 * half, sizeof q);
      store16(out + b * 32 + 16 * half, __builtin_convertvector(__builtin_convertvector(q, I32x16), F32x16) * d);
    }
  }
}

TROUPE_INLINE void to_codes(const void* row, std::size_t cols, const CodesRow& out) {
  const auto* p = static_cast<const std::uint8_t*>(row);
  const std::size_t blocks = cols / 32, padded = round_up(blocks, 2);
  for (std::size_t b = 0; b < blocks; ++b) std::memcpy(out.codes + b * 32, p + b * kBlockBytes + 2, 32);
  if (padded != blocks) std::memset(out.codes + blocks * 32, 0, 32);
  for (std::size_t b = 0; b < padded; b += 16) {
    const std::size_t n = blocks - b < 16 ? blocks - b : 16;
    const F32x16 d = scales(p + b * kBlockBytes, n);
    for (std::size_t i = 0; i < (padded - b < 16 ? padded - b : 16); i += 2) {
      const F32x16 pair = {d[i], d[i], d[i], d[i], d[i], d[i], d[i], d[i],
                           d[i + 1], d[i + 1], d[i + 1], d[i + 1], d[i + 1], d[i + 1], d[i + 1], d[i + 1]};
      store16(out.scale8 + (b + i) * 8, pair);
    }
  }
}

TROUPE_SIMD_TARGETS(f32_from_q8_0, (const void* row, std::size_t cols, float* out), to_f32(row, cols, out))
TROUPE_SIMD_TARGETS(codes_from_q8_0, (const void* row, std::size_t cols, const CodesRow& out), to_codes(row, cols, out))

}  // namespace

UnpackF32 unpack_f32_q8_0(Target target) { return f32_from_q8_0_pick(target); }
UnpackCodes unpack_codes_q8_0(Target target) { return codes_from_q8_0_pick(target); }

}  // namespace troupe::kernels
