// Rows of weights as stored (kernels/host/rows.h says the formats), 16 elements at a time in F32: the same operations as the
// host's unpacking, hence the same bits. What is read and what is made of it are two steps, so that a kernel can read ahead into registers.
// Rows begin at multiples of the block's own alignment: 16 bytes for F32, F16, BF16 and Q4_K, 4 for Q4_1, 2 for the others.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/numbers.h"
#include "kernels/kernels.h"

namespace troupe::kernels {

// Byte of a stored block.
__device__ inline int byte_of(const std::uint8_t* p, int i) { return static_cast<int>(word16(p + (i & ~1)) >> (8 * (i & 1)) & 0xffu); }

template <Format kFormat>
constexpr int raw_words() {
  switch (kFormat) {
    case Format::f32:
      return 16;
    case Format::q4_1:
      return 5;
    case Format::q8_0:
    case Format::q4_0:
      return 9;
    case Format::q6_k:
      return 18;
    default:
      return 8;  // f16, bf16, q4_k
  }
}

// What 16 elements are made of.
template <Format kFormat>
struct Raw16 {
  std::uint32_t w[raw_words<kFormat>()];
};

// Words at a multiple of 16 bytes.
template <int kWords>
__device__ inline void read_words(const void* p, std::uint32_t* to) {
  TROUPE_UNROLL for (int i = 0; i < kWords / 4; ++i) {
    const Word128 v = word128(static_cast<const std::uint8_t*>(p) + 16 * i);
    TROUPE_UNROLL for (int j = 0; j < 4; ++j) to[4 * i + j] = v.w[j];
  }
}

// Of elements [col, col + 16) of the row; col is a multiple of 16.
template <Format kFormat>
__device__ inline Raw16<kFormat> load16(const std::uint8_t* row, std::uint32_t col) {
  Raw16<kFormat> raw;
  if constexpr (kFormat == Format::f32) {
    read_words<16>(row + std::size_t{4} * col, raw.w);
  } else if constexpr (kFormat == Format::f16 || kFormat == Format::bf16) {
    read_words<8>(row + std::size_t{2} * col, raw.w);
  } else if constexpr (kFormat == Format::q8_0 || kFormat == Format::q4_0) {
    constexpr bool kBytes = kFormat == Format::q8_0;
    const std::uint8_t* p = row + std::size_t{col / 32} * (kBytes ? 34 : 18);
    raw.w[0] = word16(p);
    TROUPE_UNROLL for (int i = 0; i < 8; ++i) raw.w[1 + i] = word16(p + 2 + (kBytes ? col % 32 : 0) + 2 * i);
  } else if constexpr (kFormat == Format::q4_1) {
    const std::uint8_t* p = row + std::size_t{col / 32} * 20;
    TROUPE_UNROLL for (int i = 0; i < 5; ++i) raw.w[i] = word32(p + 4 * i);
  } else if constexpr (kFormat == Format::q4_k) {
    const std::uint8_t* p = row + std::size_t{col / 256} * 144;
    read_words<4>(p, raw.w);  // d, m, and 12 bytes of scales
    read_words<4>(p + 16 + 32 * (col % 256 / 64) + col % 32, raw.w + 4);
  } else {
    static_assert(kFormat == Format::q6_k);
    const std::uint8_t* p = row + std::size_t{col / 256} * 210;
    const int e = static_cast<int>(col % 256), n = e / 128, k = e / 32 % 4, at = e % 32;
    raw.w[0] = word16(p + 208);
    raw.w[1] = static_cast<std::uint32_t>(byte_of(p + 192, e / 16));
    TROUPE_UNROLL for (int i = 0; i < 8; ++i) {
      raw.w[2 + i] = word16(p + 64 * n + 32 * (k % 2) + at + 2 * i);
      raw.w[10 + i] = word16(p + 128 + 32 * n + at + 2 * i);
    }
  }
  return raw;
}

template <Format kFormat>
__device__ inline void unpack16(const Raw16<kFormat>& raw, std::uint32_t col, float (&out)[16]) {
  if constexpr (kFormat == Format::f32) {
    TROUPE_UNROLL for (int i = 0; i < 16; ++i) out[i] = float_from_bits(raw.w[i]);
  } else if constexpr (kFormat == Format::f16) {
    TROUPE_UNROLL for (int i = 0; i < 16; ++i) out[i] = from_f16(raw.w[i / 2] >> (16 * (i % 2)) & 0xffffu);
  } else if constexpr (kFormat == Format::bf16) {
    TROUPE_UNROLL for (int i = 0; i < 8; ++i) {
      out[2 * i] = low_of(raw.w[i]);
      out[2 * i + 1] = high_of(raw.w[i]);
    }
  } else if constexpr (kFormat == Format::q8_0) {
    const float d = from_f16(raw.w[0]);
    TROUPE_UNROLL for (int i = 0; i < 8; ++i) {
      const std::uint32_t q = raw.w[1 + i];
      out[2 * i] = static_cast<float>(static_cast<std::int8_t>(q & 0xffu)) * d;
      out[2 * i + 1] = static_cast<float>(static_cast<std::int8_t>(q >> 8)) * d;
    }
  } else if constexpr (kFormat == Format::q4_0) {
    const float d = from_f16(raw.w[0]);
    const int shift = col % 32 == 0 ? 0 : 4;
    TROUPE_UNROLL for (int i = 0; i < 8; ++i) {
      const int q = static_cast<int>(raw.w[1 + i]) >> shift;
      out[2 * i] = static_cast<float>((q & 15) - 8) * d;
      out[2 * i + 1] = static_cast<float>((q >> 8 & 15) - 8) * d;
    }
  } else if constexpr (kFormat == Format::q4_1) {
    const float d = from_f16(raw.w[0] & 0xffffu), m = from_f16(raw.w[0] >> 16);
    const int shift = col % 32 == 0 ? 0 : 4;
    TROUPE_UNROLL for (int i = 0; i < 16; ++i) { out[i] = static_cast<float>(raw.w[1 + i / 4] >> (shift + 8 * (i % 4)) & 15u) * d + m; }
  } else if constexpr (kFormat == Format::q4_k) {
    const auto scale_byte = [&](int i) {  // a shift, not an address: raw stays in registers
      const std::uint32_t word = i < 4 ? raw.w[1] : i < 8 ? raw.w[2] : raw.w[3];
      return static_cast<int>(word >> (8 * (i % 4)) & 0xffu);
    };
    const int j = static_cast<int>(col % 256 / 32);
    const int scale = j < 4 ? scale_byte(j) & 63 : (scale_byte(j + 4) & 15) | (scale_byte(j - 4) >> 6) << 4;
    const int least = j < 4 ? scale_byte(j + 4) & 63 : (scale_byte(j + 4) >> 4) | (scale_byte(j) >> 6) << 4;
    const float d = from_f16(raw.w[0] & 0xffffu) * static_cast<float>(scale), m = from_f16(raw.w[0] >> 16) * static_cast<float>(least);
    const int shift = j % 2 == 0 ? 0 : 4;
    TROUPE_UNROLL for (int i = 0; i < 16; ++i) { out[i] = static_cast<float>(raw.w[4 + i / 4] >> (shift + 8 * (i % 4)) & 15u) * d - m; }
  } else {
    static_assert(kFormat == Format::q6_k);
    const int k = static_cast<int>(col / 32 % 4);
    const float d = from_f16(raw.w[0]) * static_cast<float>(static_cast<std::int8_t>(raw.w[1]));
    TROUPE_UNROLL for (int i = 0; i < 16; ++i) {
      const int low = static_cast<int>(raw.w[2 + i / 2] >> (8 * (i % 2) + (k < 2 ? 0 : 4)) & 15u);
      const int high = static_cast<int>(raw.w[10 + i / 2] >> (8 * (i % 2) + 2 * k) & 3u);
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
