// CUDA's names over the SIMT machine, as far as our kernels use them. Put in front of a .cu by the compiler's -include, so
// that the sources themselves know nothing of it.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <exception>
#include <type_traits>
#include <vector>

#include "tests/simt/simt.h"

#define TROUPE_SIMT 1
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

#define threadIdx (::troupe::simt::thread_index())
#define blockIdx (::troupe::simt::block_index())
#define blockDim (::troupe::simt::block_size())
#define gridDim (::troupe::simt::grid_size())

namespace troupe::simt {

template <class T>
T as_seen_by_device(const T& argument) {
  if constexpr (std::is_pointer_v<T>) {
    return static_cast<T>(device_address(const_cast<void*>(static_cast<const void*>(argument))));
  } else {
    return argument;
  }
}

// P: the kernel's parameters.
template <class... P>
std::vector<Touched> touched(const std::type_identity_t<P>&... arguments) {
  std::vector<Touched> out;
  [[maybe_unused]] const auto add = [&out]<class T>(const T& argument) {
    if constexpr (std::is_pointer_v<T>) {
      out.push_back({argument, !std::is_const_v<std::remove_pointer_t<T>>});
    } else if constexpr (std::is_class_v<T>) {
      static_assert(std::is_trivially_copyable_v<T>, "the device gets the argument's bytes");
#if __has_builtin(__builtin_clear_padding)  // what is left there may look like an address
      T copy = argument;
      __builtin_clear_padding(&copy);
      for (std::size_t at = 0; at + sizeof(void*) <= sizeof(T); at += sizeof(void*)) {
        const void* word = nullptr;
        std::memcpy(&word, reinterpret_cast<const char*>(&copy) + at, sizeof word);
        out.push_back({word, false, true});
      }
#endif
    }
  };
  (add(arguments), ...);
  return out;
}

struct Exchange {
  unsigned char value[8], result[8];
  unsigned source;
};

inline void exchange(void* const* arguments) {
  for (unsigned i = 0; i < 32; ++i) {
    auto* to = static_cast<Exchange*>(arguments[i]);
    if (to == nullptr) continue;
    const auto* from = static_cast<const Exchange*>(arguments[to->source % 32]);
    if (from == nullptr)
      throw Fault("lane " + std::to_string(i) + " reads lane " + std::to_string(to->source % 32) + ", which is not in the mask");
    std::memcpy(to->result, from->value, sizeof to->result);
  }
}

template <class T>
T shuffle(unsigned mask, T v, unsigned source, const char* operation, Where where) {
  static_assert(sizeof(T) <= 8);
  Exchange e{};
  std::memcpy(e.value, &v, sizeof v);
  e.source = source;
  warp_barrier(mask, &e, &exchange, operation, where);
  std::memcpy(&v, e.result, sizeof v);
  return v;
}

struct Vote {
  bool yes;
  unsigned result;
};

inline void vote(void* const* arguments) {
  unsigned bits = 0;
  for (unsigned i = 0; i < 32; ++i) bits |= (arguments[i] != nullptr && static_cast<Vote*>(arguments[i])->yes ? 1u : 0u) << i;
  for (unsigned i = 0; i < 32; ++i) {
    if (arguments[i] != nullptr) static_cast<Vote*>(arguments[i])->result = bits;
  }
}

// mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32; fragments as PTX lays them out over the lanes (PTX ISA, "Matrix
// Fragments for mma.m16n8k16"). The sum of the 16 exact products and the accumulator is rounded once: PTX leaves the order
// and the rounding inside one mma open.
struct Mma {
  float* d;
  const std::uint32_t* a;
  const std::uint32_t* b;
};

inline float low_bf16(std::uint32_t pair) {
  const std::uint32_t bits = pair << 16;
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}
inline float high_bf16(std::uint32_t pair) {
  const std::uint32_t bits = pair & 0xffff0000u;
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}

inline void mma(void* const* arguments) {
  double a[16][16], b[8][16];
  for (unsigned i = 0; i < 32; ++i) {
    const auto* m = static_cast<const Mma*>(arguments[i]);
    if (m == nullptr) throw Fault("mma needs all 32 lanes");
    const unsigned group = i / 4, pair = i % 4 * 2;
    for (unsigned r = 0; r < 4; ++r) {  // rows group, group + 8; columns pair, then pair + 8
      const unsigned row = group + r % 2 * 8, col = pair + r / 2 * 8;
      a[row][col] = low_bf16(m->a[r]), a[row][col + 1] = high_bf16(m->a[r]);
    }
    for (unsigned r = 0; r < 2; ++r) b[group][pair + r * 8] = low_bf16(m->b[r]), b[group][pair + r * 8 + 1] = high_bf16(m->b[r]);
  }
  for (unsigned i = 0; i < 32; ++i) {
    const auto* m = static_cast<const Mma*>(arguments[i]);
    const unsigned group = i / 4, pair = i % 4 * 2;
    for (unsigned r = 0; r < 4; ++r) {
      const double *x = a[group + r / 2 * 8], *y = b[pair + r % 2];
      double sum = m->d[r];
      for (unsigned k = 0; k < 16; ++k) sum += x[k] * y[k];
      m->d[r] = static_cast<float>(sum);
    }
  }
}

inline void mma_bf16_16x8x16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], Where where = Where::current()) {
  Mma m{d, a, b};
  warp_barrier(~0u, &m, &mma, "mma", where);
}

}  // namespace troupe::simt

inline void __syncthreads(troupe::simt::Where where = troupe::simt::Where::current()) {
  troupe::simt::block_barrier(0, "__syncthreads", where);
}
inline int __syncthreads_or(int value, troupe::simt::Where where = troupe::simt::Where::current()) {
  return troupe::simt::block_barrier(value != 0, "__syncthreads_or", where);
}
inline void __syncwarp(unsigned mask = ~0u, troupe::simt::Where where = troupe::simt::Where::current()) {
  troupe::simt::warp_barrier(mask, nullptr, nullptr, "__syncwarp", where);
}
template <class T>
T __shfl_sync(unsigned mask, T v, int source, int = 32, troupe::simt::Where where = troupe::simt::Where::current()) {
  return troupe::simt::shuffle(mask, v, static_cast<unsigned>(source), "__shfl_sync", where);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T v, int bits, int = 32, troupe::simt::Where where = troupe::simt::Where::current()) {
  return troupe::simt::shuffle(mask, v, troupe::simt::lane_index() ^ static_cast<unsigned>(bits), "__shfl_xor_sync", where);
}
inline unsigned __ballot_sync(unsigned mask, int yes, troupe::simt::Where where = troupe::simt::Where::current()) {
  troupe::simt::Vote v{yes != 0, 0};
  troupe::simt::warp_barrier(mask, &v, &troupe::simt::vote, "__ballot_sync", where);
  return v.result;
}

// Atomics: a place where another thread may run, then the operation in one go.
template <class T>
T atomicAdd(T* to, T x) {
  troupe::simt::may_switch();
  const T old = *to;
  *to = old + x;
  return old;
}
template <class T>
T atomicOr(T* to, T x) {
  troupe::simt::may_switch();
  const T old = *to;
  *to = old | x;
  return old;
}
template <class T>
T atomicMax(T* to, T x) {
  troupe::simt::may_switch();
  const T old = *to;
  if (x > old) *to = x;
  return old;
}
template <class T>
T atomicExch(T* to, T x) {
  troupe::simt::may_switch();
  const T old = *to;
  *to = x;
  return old;
}
