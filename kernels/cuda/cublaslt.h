// Products of BF16 matrices by NVIDIA's cuBLASLt, for users who give up R1: its sums have another order for every shape, and nobody
// says which. The library is opened where it is found, at run time; nothing is linked, no header of it is needed, and what
// this uses of its C interface is declared in cublaslt.cc.
//
// Plans (descriptors, and the algorithm that the library's heuristic names) are made at the first product of a shape and kept,
// kMostPlans at most. Calls enqueue on the stream and can be captured into a graph.
//
// Thread: the one that owns the stream; opening and closing by whoever owns the model's life, bound to the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "kernels/cuda/stream.h"

namespace troupe::kernels {

inline constexpr std::size_t kCublasLtWorkspace = std::size_t{32} << 20;  // bytes
inline constexpr std::size_t kMostPlans = 4096;

// y[t][r] = (add ? y[t][r] : 0) + sum over c of w[r][c] * x[t][c], for t < n, at y + t * stride + r. Sums in F32. Device memory.
struct CublasLtProduct {
  const void* w = nullptr;  // BF16 [rows][cols]
  std::uint32_t rows = 0;
  std::uint32_t cols = 0;
  const std::uint16_t* x = nullptr;  // BF16 [n][cols]
  std::uint32_t n = 0;
  float* y = nullptr;
  std::size_t stride = 0;  // at least rows
  bool add = false;
};

class CublasLt {
 public:
  virtual ~CublasLt() = default;
  // kCublasLtWorkspace bytes of device memory at a multiple of 256, which the products use one after the other.
  virtual void use_workspace(void* workspace) = 0;
  // A failure is kept for take_failure(); of a product that failed nothing may be on the stream.
  virtual void multiply(const CublasLtProduct& product, CudaStream stream) = 0;
  // The first failure since the last call; empty: none.
  virtual std::string take_failure() = 0;
};

struct OpenedCublasLt {
  std::unique_ptr<CublasLt> library;
  std::string why;  // there is none
};

// `path`: of the library; empty: by the names that toolkits give it, where the loader looks, then where toolkits put it.
OpenedCublasLt open_cublaslt(const std::string& path);

}  // namespace troupe::kernels
