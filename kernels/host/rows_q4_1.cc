#include "kernels/host/interleave.h"
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

template <class B>
TROUPE_INLINE void interleave(const B& bundle, std::size_t cols, const CodesBundle& out) {
  for (std::size_t b = 0; b < cols / 32; ++b) {
    const std::size_t at = b * kBlockBytes;
    prefetch_block(bundle.base, b, kBlockBytes, kBundle * bundle.stride);
    const U32x16 dm = word(bundle, at);
    store16(out.scale + b * kBundle, half16(dm & 0xffffu));
    store16(out.min + b * kBundle, half16(dm >> 16));
    const Words w = words(bundle, at + 4);
    std::uint8_t* codes = out.codes + b * 32 * kBundle;
    for (std::size_t k = 0; k < 4; ++k) {
      store_words(codes + k * 64, w.w[k] & 0x0f0f0f0fu);
      store_words(codes + (k + 4) * 64, (w.w[k] >> 4) & 0x0f0f0f0fu);
    }
  }
}

}  // namespace

TROUPE_UNPACKERS(q4_1)

}  // namespace troupe::kernels
