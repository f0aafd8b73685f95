// CUDA's errors as ours. Any thread.
#pragma once

#include <cuda_runtime_api.h>

#include "messages/error.h"

namespace troupe::device {

// Whether CUDA says that the process can do no more CUDA work after this code (driver_types.h: "the process must be terminated
// and relaunched"), or that the device is gone.
bool cuda_is_sticky(cudaError_t error);

// The error of a call that failed: device_lost for a sticky code, else device_failed. Takes the code out of the
// thread's cudaGetLastError.
Error cuda_error(cudaError_t error, const char* call);

}  // namespace troupe::device
