#include "kernels/host/half.h"
#include "kernels/host/interleave.h"
#include "kernels/host/rows.h"
#include "kernels/host/simd.h"

namespace troupe::kernels {

namespace {

constexpr std::size_t kBlockBytes = 210, kHigh = 128, kScales = 192, kScale = 208;  // of a block of 256, and where its parts begin

typedef std::int8_t I8x16 __attribute__((vector_size(16)));
typedef std::uint8_t U8x16 __attribute__((vector_size(16)));
typedef std::uint8_t U8x64 __attribute__((vector_size(64)));

TROUPE_INLINE U8x16 load_bytes(const std::uint8_t* p) {
  U8x16 v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

TROUPE_INLINE void to_f32(const void* row, std::size_t cols, float* out) {
  const auto* p = static_cast<const std::uint8_t*>(row);
  for (std::size_t b = 0; b < cols / 256; ++b, p += kBlockBytes) {
    std::uint16_t h;
    std::memcpy(&h, p + kScale, 2);
    const float d = half_to_float(h);
    for (std::size_t e = 0; e < 256; e += 16, out += 16) {
      const std::size_t n = e / 128, k = e / 32 % 4, i = e % 32;
      const U8x16 low = load_bytes(p + 64 * n + 32 * (k % 2) + i), high = load_bytes(p + kHigh + 32 * n + i);
      const U8x16 q = (k < 2 ? low & 15 : low >> 4) | ((high >> static_cast<std::uint8_t>(2 * k)) & 3) << 4;
      const float ds = d * static_cast<float>(static_cast<std::int8_t>(p[kScales + e / 16]));
      store16(out, __builtin_convertvector(__builtin_convertvector((I8x16)(q - 32), I32x16), F32x16) * ds);
    }
  }
}

template <class B>
TROUPE_INLINE void interleave(const B& bundle, std::size_t cols, const CodesBundle& out) {
  for (std::size_t b = 0; b < cols / 256; ++b) {
    const std::size_t at = b * kBlockBytes;
    prefetch_block(bundle.base, b, kBlockBytes, kBundle * bundle.stride);
    const F32x16 d = half16(half_word(bundle, at + kScale));
    const Words scales = words(bundle, at + kScales);
    float* scale = out.scale + b * 16 * kBundle;
    for (unsigned j = 0; j < 16; ++j) {
      const I32x16 s = (I32x16)(scales.w[j / 4] << (24 - 8 * (j % 4))) >> 24;
      store16(scale + j * kBundle, d * __builtin_convertvector(s, F32x16));
    }
    std::uint8_t* codes = out.codes + b * 256 * kBundle;
    for (std::size_t n = 0; n < 2; ++n) {
      for (std::size_t h = 0; h < 2; ++h) {  // 16 elements of each of the four groups of 32
        const Words even = words(bundle, at + 64 * n + 16 * h), odd = words(bundle, at + 64 * n + 32 + 16 * h);
        const Words high = words(bundle, at + kHigh + 32 * n + 16 * h);
        for (std::size_t w = 0; w < 4; ++w) {
          for (unsigned k = 0; k < 4; ++k) {
            const U32x16 low = (k % 2 == 0 ? even.w[w] : odd.w[w]) >> (k < 2 ? 0u : 4u) & 0x0f0f0f0fu;
            const U32x16 q = low | (high.w[w] >> (2 * k) & 0x03030303u) << 4;
            store_words(codes + ((4 * n + k) * 8 + 4 * h + w) * 64, (U32x16)((U8x64)q - 32));
          }
        }
      }
    }
  }
}

}  // namespace

TROUPE_UNPACKERS(q6_k)

}  // namespace troupe::kernels
