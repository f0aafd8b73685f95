#include "kernels/host/half.h"
#include "kernels/host/interleave.h"
#include "kernels/host/rows.h"
#include "kernels/host/simd.h"

namespace troupe::kernels {

namespace {

constexpr std::size_t kBlockBytes = 18;

typedef std::uint8_t U8x16 __attribute__((vector_size(16)));

TROUPE_INLINE F32x16 values(U8x16 q, float d) { return __builtin_convertvector(__builtin_convertvector(q, I32x16) - 8, F32x16) * d; }

TROUPE_INLINE void to_f32(const void* row, std::size_t cols, float* out) {
  const auto* p = static_cast<const std::uint8_t*>(row);
  for (std::size_t b = 0; b < cols / 32; ++b, p += kBlockBytes) {
    std::uint16_t h;
    std::memcpy(&h, p, 2);
    const float d = half_to_float(h);
    U8x16 q;
    std::memcpy(&q, p + 2, sizeof q);
    store16(out + b * 32, values(q & 15, d));
    store16(out + b * 32 + 16, values(q >> 4, d));
  }
}

// As codes 0 to 15 with the minimum -8 d, which is exact.
template <class B>
TROUPE_INLINE void interleave(const B& bundle, std::size_t cols, const CodesBundle& out) {
  for (std::size_t b = 0; b < cols / 32; ++b) {
    const std::size_t at = b * kBlockBytes;
    prefetch_block(bundle.base, b, kBlockBytes, kBundle * bundle.stride);
    const F32x16 d = half16(half_word(bundle, at));
    store16(out.scale + b * kBundle, d);
    store16(out.min + b * kBundle, d * -8.0f);
    const Words w = words(bundle, at + 2);
    std::uint8_t* codes = out.codes + b * 32 * kBundle;
    for (std::size_t k = 0; k < 4; ++k) {
      store_words(codes + k * 64, w.w[k] & 0x0f0f0f0fu);
      store_words(codes + (k + 4) * 64, (w.w[k] >> 4) & 0x0f0f0f0fu);
    }
  }
}

}  // namespace

TROUPE_UNPACKERS(q4_0)

}  // namespace troupe::kernels
