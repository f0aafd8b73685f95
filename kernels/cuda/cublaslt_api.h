// What is used of cuBLASLt's C interface: numbers and layouts are those of NVIDIA's cublasLt.h of CUDA 12 and 13, which is not needed to
// build. Where a toolkit has it, tests/fake_cublaslt/signatures_test compares.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/stream.h"

namespace troupe::kernels::cublaslt_api {

using Status = int;  // 0 = success
using Handle = void*;
using Desc = void*;    // cublasLtMatmulDesc_t
using Layout = void*;  // cublasLtMatrixLayout_t
using Preference = void*;
inline constexpr int kR32F = 0, kR16BF = 14;     // cudaDataType
inline constexpr int kCompute32F = 68;           // cublasComputeType_t
inline constexpr std::int32_t kTransposed = 1;   // cublasOperation_t
inline constexpr int kDescTransA = 3;            // cublasLtMatmulDescAttributes_t
inline constexpr int kPreferWorkspaceBytes = 1;  // cublasLtMatmulPreferenceAttributes_t
inline constexpr int kPreferAlignmentOfA = 5;    // of B, C and D: the next three
struct Algorithm {
  std::uint64_t data[8];
};
struct Heuristic {
  Algorithm algorithm;
  std::size_t workspace;
  Status state;
  float waves;
  int reserved[4];
};
static_assert(sizeof(Heuristic) == 96);

struct Functions {
  Status (*create)(Handle*) = nullptr;
  Status (*destroy)(Handle) = nullptr;
  Status (*desc_create)(Desc*, int compute, int scale) = nullptr;
  Status (*desc_destroy)(Desc) = nullptr;
  Status (*desc_set)(Desc, int attribute, const void* value, std::size_t bytes) = nullptr;
  Status (*layout_create)(Layout*, int type, std::uint64_t rows, std::uint64_t cols, std::int64_t ld) = nullptr;
  Status (*layout_destroy)(Layout) = nullptr;
  Status (*preference_create)(Preference*) = nullptr;
  Status (*preference_destroy)(Preference) = nullptr;
  Status (*preference_set)(Preference, int attribute, const void* value, std::size_t bytes) = nullptr;
  Status (*heuristic)(Handle, Desc, Layout a, Layout b, Layout c, Layout d, Preference, int wanted, Heuristic* found, int* n) = nullptr;
  Status (*matmul)(Handle, Desc, const void* alpha, const void* a, Layout, const void* b, Layout, const void* beta, const void* c, Layout,
                   void* d, Layout, const Algorithm*, void* workspace, std::size_t bytes, CudaStream) = nullptr;
};

}  // namespace troupe::kernels::cublaslt_api
