#include "kernels/host/half.h"
#include "kernels/host/interleave.h"
#include "kernels/host/rows.h"
#include "kernels/host/simd.h"

namespace troupe::kernels {

namespace {

constexpr std::size_t kBlockBytes = 34;

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

template <class B>
TROUPE_INLINE void interleave(const B& bundle, std::size_t cols, const CodesBundle& out) {
  for (std::size_t b = 0; b < cols / 32; ++b) {
    const std::size_t at = b * kBlockBytes;
    prefetch_block(bundle.base, b, kBlockBytes, kBundle * bundle.stride);
    store16(out.scale + b * kBundle, half16(half_word(bundle, at)));
    std::uint8_t* codes = out.codes + b * 32 * kBundle;
    for (std::size_t h = 0; h < 2; ++h, codes += 16 * kBundle) {
      const Words w = words(bundle, at + 2 + 16 * h);
      for (std::size_t k = 0; k < 4; ++k) store_words(codes + k * 64, w.w[k]);
    }
  }
}

}  // namespace

TROUPE_UNPACKERS(q8_0)

}  // namespace troupe::kernels
