#include "kernels/host/half.h"
#include "kernels/host/interleave.h"
#include "kernels/host/rows.h"
#include "kernels/host/simd.h"

namespace troupe::kernels {

namespace {

constexpr std::size_t kBlockBytes = 144, kScales = 4, kCodes = 16;  // of a block of 256, and where its parts begin

typedef std::uint8_t U8x16 __attribute__((vector_size(16)));

TROUPE_INLINE float half_at(const std::uint8_t* p) {
  std::uint16_t h;
  std::memcpy(&h, p, 2);
  return half_to_float(h);
}

TROUPE_INLINE void to_f32(const void* row, std::size_t cols, float* out) {
  const auto* p = static_cast<const std::uint8_t*>(row);
  for (std::size_t b = 0; b < cols / 256; ++b, p += kBlockBytes) {
    const float d = half_at(p), dmin = half_at(p + 2);
    const std::uint8_t* s = p + kScales;
    for (std::size_t j = 0; j < 8; ++j, out += 32) {
      const int scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
      const int least = j < 4 ? s[j + 4] & 63 : (s[j + 4] >> 4) | (s[j] >> 6) << 4;
      const float ds = d * static_cast<float>(scale), m = dmin * static_cast<float>(least);
      for (std::size_t h = 0; h < 2; ++h) {
        U8x16 q;
        std::memcpy(&q, p + kCodes + 32 * (j / 2) + 16 * h, sizeof q);
        q = j % 2 == 0 ? q & 15 : q >> 4;
        store16(out + 16 * h, __builtin_convertvector(__builtin_convertvector(q, I32x16), F32x16) * ds - m);
      }
    }
  }
}

TROUPE_INLINE F32x16 as_floats(U32x16 v) { return __builtin_convertvector((I32x16)v, F32x16); }

template <class B>
TROUPE_INLINE void interleave(const B& bundle, std::size_t cols, const CodesBundle& out) {
  for (std::size_t b = 0; b < cols / 256; ++b) {
    const std::size_t at = b * kBlockBytes;
    prefetch_block(bundle.base, b, kBlockBytes, kBundle * bundle.stride);
    const Words head = words(bundle, at);
    const F32x16 d = half16(head.w[0] & 0xffffu), dmin = half16(head.w[0] >> 16);
    float* scale = out.scale + b * 8 * kBundle;
    float* min = out.min + b * 8 * kBundle;
    for (unsigned j = 0; j < 4; ++j) {  // byte j of the words of s[0..3], s[4..7], s[8..11]
      const U32x16 low = head.w[1] >> (8 * j), middle = head.w[2] >> (8 * j), high = head.w[3] >> (8 * j);
      store16(scale + j * kBundle, d * as_floats(low & 63u));
      store16(min + j * kBundle, -(dmin * as_floats(middle & 63u)));
      store16(scale + (j + 4) * kBundle, d * as_floats((high & 15u) | ((low >> 6 & 3u) << 4)));
      store16(min + (j + 4) * kBundle, -(dmin * as_floats((high >> 4 & 15u) | ((middle >> 6 & 3u) << 4))));
    }
    std::uint8_t* codes = out.codes + b * 256 * kBundle;
    for (std::size_t g = 0; g < 8; ++g) {  // 16 bytes: the half g % 2 of two blocks of 32
      const Words w = words(bundle, at + kCodes + 16 * g);
      std::uint8_t* low = codes + (g / 2 * 16 + g % 2 * 4) * 64;
      for (std::size_t k = 0; k < 4; ++k) {
        store_words(low + k * 64, w.w[k] & 0x0f0f0f0fu);
        store_words(low + (k + 8) * 64, (w.w[k] >> 4) & 0x0f0f0f0fu);
      }
    }
  }
}

}  // namespace

TROUPE_UNPACKERS(q4_k)

}  // namespace troupe::kernels
