// What the steps of one CUDA stream work in: the device's copy of a step's parameters, the activations, what the host reads of a
// step, and the scratch of the kernels. Two streams that compute at once need two.
//
// The memory is its DeviceMemory's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/models/device_memory.h"
#include "device/models/llama_forward.h"
#include "device/models/llama_step.h"
#include "device/models/model_config.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/kernels.h"
#include "messages/error.h"

namespace troupe::device {

struct CudaWorkspace {
  std::byte* params = nullptr;  // as UploadLayout has it
  LlamaScratch scratch;
  kernels::RowReadback* readback = nullptr;  // [max_rows]
  float* logits_out = nullptr;               // [max_logits_rows][vocab]
  kernels::RowLogprobs* logprobs = nullptr;  // [max_rows]
  kernels::CudaKernelsOptions kernels;       // without its stream and its library of products

  template <class T>
  const T* param(std::size_t offset) const {
    return reinterpret_cast<const T*>(params + offset);
  }
};

// Errors: what alloc_device answers.
Result<CudaWorkspace> cuda_workspace(DeviceMemory& memory, const ModelConfig& config, const LlamaOptions& options,
                                     std::size_t upload_bytes);

}  // namespace troupe::device
