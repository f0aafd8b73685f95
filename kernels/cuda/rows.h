// Rows of weights as stored (kernels/host/rows.h says the formats), 16 elements at a time in F32: the same operations as the
// host's unpacking, hence the same bits. Rows begin at even addresses (F32: at multiples of 4).
#pragma once

#include <cstdint>

#include "kernels/cuda/numbers.h"
#include "kernels/kernels.h"

namespace troupe::kernels {

// Byte of a stored block.
__device__ inline int byte_of(const std::uint8_t* p, int i) { return static_cast<int>(word16(p + (i & ~1)) >> (8 * (i & 1)) & 0xffu); }

// Elements [col, col + 16) of the row; col is a multiple of 16.
template <Format kFormat>
__device__ inline void unpack16(const std::uint8_t* row, std::uint32_t col, float (&out)[16]) {
  if constexpr (kFormat == Format::f32) {
    for (int i = 0; i < 16; ++i) out[i] = float_from_bits(word32(row + std::size_t{4} * (col + i)));
  } else if constexpr (kFormat == Format::f16) {
    for (int i = 0; i < 16; ++i) out[i] = from_f16(word16(row + std::size_t{2} * (col + i)));
  } else if constexpr (kFormat == Format::bf16) {
    for (int i = 0; i < 16; ++i) out[i] = from_bf16(word16(row + std::size_t{2} * (col + i)));
  } else if constexpr (kFormat == Format::q8_0) {
    const std::uint8_t* p = row + std::size_t{col / 32} * 34;
    const float d = from_f16(word16(p));
    for (int i = 0; i < 16; i += 2) {
      const std::uint32_t q = word16(p + 2 + col % 32 + i);
      out[i] = static_cast<float>(static_cast<std::int8_t>(q & 0xffu)) * d;
      out[i + 1] = static_cast<float>(static_cast<std::int8_t>(q >> 8)) * d;
    }
  } else if constexpr (kFormat == Format::q4_0 || kFormat == Format::q4_1) {
    constexpr bool kMin = kFormat == Format::q4_1;
    const std::uint8_t* p = row + std::size_t{col / 32} * (kMin ? 20 : 18);
    const float d = from_f16(word16(p)), m = kMin ? from_f16(word16(p + 2)) : 0.0f;
    const int shift = col % 32 == 0 ? 0 : 4;
    for (int i = 0; i < 16; i += 2) {
      const int q = static_cast<int>(word16(p + (kMin ? 4 : 2) + i)) >> shift;
      if constexpr (kMin) {
        out[i] = static_cast<float>(q & 15) * d + m;
        out[i + 1] = static_cast<float>(q >> 8 & 15) * d + m;
      } else {
        out[i] = static_cast<float>((q & 15) - 8) * d;
        out[i + 1] = static_cast<float>((q >> 8 & 15) - 8) * d;
      }
    }
  } else if constexpr (kFormat == Format::q4_k) {
    const std::uint8_t* p = row + std::size_t{col / 256} * 144;
    const std::uint8_t* s = p + 4;
    const int j = static_cast<int>(col % 256 / 32);
    const int scale = j < 4 ? byte_of(s, j) & 63 : (byte_of(s, j + 4) & 15) | (byte_of(s, j - 4) >> 6) << 4;
    const int least = j < 4 ? byte_of(s, j + 4) & 63 : (byte_of(s, j + 4) >> 4) | (byte_of(s, j) >> 6) << 4;
    const float d = from_f16(word16(p)) * static_cast<float>(scale), m = from_f16(word16(p + 2)) * static_cast<float>(least);
    const int shift = j % 2 == 0 ? 0 : 4;
    for (int i = 0; i < 16; i += 2) {
      const int q = static_cast<int>(word16(p + 16 + 32 * (j / 2) + col % 32 + i)) >> shift;
      out[i] = static_cast<float>(q & 15) * d - m;
      out[i + 1] = static_cast<float>(q >> 8 & 15) * d - m;
    }
  } else {
    static_assert(kFormat == Format::q6_k);
    const std::uint8_t* p = row + std::size_t{col / 256} * 210;
    const int e = static_cast<int>(col % 256), n = e / 128, k = e / 32 % 4, at = e % 32;
    const float d = from_f16(word16(p + 208)) * static_cast<float>(static_cast<std::int8_t>(byte_of(p + 192, e / 16)));
    for (int i = 0; i < 16; ++i) {
      const int low = byte_of(p + 64 * n + 32 * (k % 2), at + i) >> (k < 2 ? 0 : 4) & 15;
      const int high = byte_of(p + 128 + 32 * n, at + i) >> (2 * k) & 3;
      out[i] = static_cast<float>((low | high << 4) - 32) * d;
    }
  }
}

// Calls f with the format as a type's value.
template <Format kFormat>
struct FormatTag {
  static constexpr Format value = kFormat;
};
template <class F>
void with_format(Format format, F&& f) {
  switch (format) {
    case Format::f32:
      return f(FormatTag<Format::f32>{});
    case Format::f16:
      return f(FormatTag<Format::f16>{});
    case Format::bf16:
      return f(FormatTag<Format::bf16>{});
    case Format::q8_0:
      return f(FormatTag<Format::q8_0>{});
    case Format::q4_0:
      return f(FormatTag<Format::q4_0>{});
    case Format::q4_1:
      return f(FormatTag<Format::q4_1>{});
    case Format::q4_k:
      return f(FormatTag<Format::q4_k>{});
    case Format::q6_k:
      return f(FormatTag<Format::q6_k>{});
  }
}

}  // namespace troupe::kernels
