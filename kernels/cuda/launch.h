// What differs between nvcc and the SIMT emulation of the tests (tests/simt), which gives CUDA's names to the host's
// compiler: how a kernel is launched, how shared memory is declared,
// and loops that are to be unrolled so that the array they index stays in registers. Only .cu files include this.
//
// They keep to what both compile: no <<<>>> but here, no extern __shared__, no CUDA header, fused multiply-adds written as
// fmaf (nvcc gets -fmad=false).
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/stream.h"

#if !defined(__CUDACC__) && !defined(TROUPE_SIMT)
#error "A .cu file needs nvcc, or the names of tests/simt/cuda_names.h put in front of it."
#endif

#ifdef __CUDACC__
#define TROUPE_SHARED(Type, name) __shared__ Type name
#define TROUPE_UNROLL _Pragma("unroll")
#else
#define TROUPE_UNROLL
#define TROUPE_SHARED(Type, name)   \
  static const char name##_key = 0; \
  Type& name = *static_cast<std::add_pointer_t<Type>>(::troupe::simt::shared_memory(&name##_key, sizeof(Type)))
#endif

namespace troupe::kernels {

struct Grid {
  std::size_t x = 1;         // up to 2^31 - 1
  std::size_t y = 1, z = 1;  // up to 65535
};

// Of a block. A kernel that may be launched with so many says so by __launch_bounds__: else the compiler may give a thread more
// registers than a block of that size has, which only the launch notices.
inline constexpr unsigned kMostThreads = 1024;

// Enqueues the kernel; an empty grid enqueues nothing. Errors stay in CUDA's last error, which the driver asks for.
template <class... P, class... A>
void launch(void (*kernel)(P...), Grid grid, unsigned threads, CudaStream stream, const A&... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
#ifdef __CUDACC__
  const dim3 blocks(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y), static_cast<unsigned>(grid.z));
  kernel<<<blocks, threads, 0, static_cast<cudaStream_t>(stream)>>>(arguments...);
#else
  simt::launch_on(
      stream, reinterpret_cast<const void*>(kernel),
      {static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y), static_cast<unsigned>(grid.z)}, {threads, 1, 1},
      [kernel, ... seen = simt::as_seen_by_device(arguments)] { kernel(seen...); }, simt::touched<P...>(arguments...));
#endif
}

template <class T>
constexpr T divide_up(T n, T by) {
  return (n + by - 1) / by;
}

}  // namespace troupe::kernels
