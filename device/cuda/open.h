// Whether a CUDA device is there and can do what the driver needs.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "messages/error.h"

namespace troupe::device {

// Binds the calling thread to the device and gives a stream on it. unsupported: no NVIDIA driver, one too old for this build, no
// such device, or one without memory pools or too old for the kernels; the sentence says which and offers the host.
Result<cudaStream_t> open_cuda_device(std::uint32_t index);

}  // namespace troupe::device
