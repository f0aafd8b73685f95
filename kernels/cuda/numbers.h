// BF16 and binary16 in device code, and warp-wide sums. BF16 = the upper half of an F32.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/host_device.h"
#include "kernels/sampling_math.h"

namespace troupe::kernels {

// Round to nearest even; a NaN becomes 0x7fff, as PTX's cvt makes it.
TROUPE_HOST_DEVICE inline std::uint16_t to_bf16(float x) {
  const std::uint32_t u = float_bits(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return static_cast<std::uint16_t>((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

// Two BF16, the first in the low half.
TROUPE_HOST_DEVICE inline std::uint32_t bf16_pair(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return static_cast<std::uint32_t>(to_bf16(low)) | static_cast<std::uint32_t>(to_bf16(high)) << 16;
#endif
}
TROUPE_HOST_DEVICE inline float low_of(std::uint32_t pair) { return float_from_bits(pair << 16); }
TROUPE_HOST_DEVICE inline float high_of(std::uint32_t pair) { return float_from_bits(pair & 0xffff0000u); }

// The same bits as the host's half_to_float: moving the exponent's bias is an exact multiplication, for subnormals too.
TROUPE_HOST_DEVICE inline float from_f16(std::uint32_t h) {
  const std::uint32_t sign = (h & 0x8000u) << 16, rest = (h & 0x7fffu) << 13;
  if ((h & 0x7c00u) == 0x7c00u) return float_from_bits(sign | 0x7f800000u | rest | ((h & 0x3ffu) != 0 ? 0x400000u : 0u));
  return float_from_bits(sign | float_bits(float_from_bits(rest) * 5.192296858534828e+33f));  // 2^112
}

// 16 bits at an even address.
TROUPE_HOST_DEVICE inline std::uint32_t word16(const std::uint8_t* p) {
  std::uint16_t w;
  memcpy(&w, __builtin_assume_aligned(p, 2), 2);
  return w;
}

// 32 bits at a multiple of 4.
TROUPE_HOST_DEVICE inline std::uint32_t word32(const std::uint8_t* p) {
  std::uint32_t w;
  memcpy(&w, __builtin_assume_aligned(p, 4), 4);
  return w;
}

// 128 bits at a multiple of 16, in one access. Elsewhere a GPU fails the launch, and so does the emulation.
struct alignas(16) Word128 {
  std::uint32_t w[4];
};
__device__ inline Word128 word128(const void* p) {
#ifdef TROUPE_SIMT
  if (reinterpret_cast<std::uintptr_t>(p) % 16 != 0) throw simt::Fault("128 bits are read at an address that is no multiple of 16");
#endif
  return *static_cast<const Word128*>(p);
}

// Over the warp, every lane gets it; pairs of lanes 16, 8, 4, 2, 1 apart.
template <class T>
__device__ inline T warp_sum(T v) {
  for (int apart = 16; apart != 0; apart /= 2) v += __shfl_xor_sync(~0u, v, apart);
  return v;
}
__device__ inline float warp_max(float v) {  // a NaN is passed over
  for (int apart = 16; apart != 0; apart /= 2) v = fmaxf(v, __shfl_xor_sync(~0u, v, apart));
  return v;
}

}  // namespace troupe::kernels
