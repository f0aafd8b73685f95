// The interface of kernels.h by the CUDA families: each call enqueues on one stream and returns, so every pointer of its
// arguments (rows, ids, cell arrays, inverse frequencies too) is device memory that stays until the step has settled. All
// scratch is the caller's; nothing is allocated here, and nothing is asked of CUDA but launches, so calls can be captured
// into a graph; the runs of lora() are then a part of it. Which tiles and which attention run depends on the number of tokens alone, and no
// bit depends on it, unless a library makes the products.
//
// Thread: the one that owns the stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/stream.h"
#include "kernels/kernels.h"

namespace troupe::kernels {

struct CudaKernelsOptions {
  CudaStream stream = nullptr;
  std::uint32_t max_context = 1;           // positions that attention may read
  std::uint32_t max_decode_tokens = 64;    // up to so many tokens a call, attention is spread over pieces of the context
  float* partial = nullptr;                // attention_partial_floats(max_decode_tokens, ...) of device memory
  std::uint32_t max_lora_rank = 0;         // of any adapter; 0: there are none, and lora() is not called
  float* lora_shrunk = nullptr;            // lora_scratch_floats(tokens of a step, max_lora_rank) of device memory
  float* sample_work = nullptr;            // [rows that sample][vocabulary] of device memory
  std::uint32_t* sample_counts = nullptr;  // the same, zeroed before the first step
  CublasLt* cublaslt = nullptr;            // makes the products of BF16 weights; null: our own do
  std::uint16_t* rounded = nullptr;        // with it: BF16 [largest n_rows of a matmul][widest cols] of device memory
};

// head_dim of every KV cache: even, up to 256.
std::unique_ptr<Kernels> make_cuda_kernels(const CudaKernelsOptions& options);

}  // namespace troupe::kernels
