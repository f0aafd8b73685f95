#include "device/cuda/errors.h"

#include <fmt/format.h>

namespace troupe::device {

bool cuda_is_sticky(cudaError_t error) {
  switch (error) {
    case cudaErrorCudartUnloading:
    case cudaErrorDevicesUnavailable:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorContextIsDestroyed:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorMpsClientTerminated:
    case cudaErrorExternalDevice:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

Error cuda_error(cudaError_t error, const char* call) {
  (void)cudaGetLastError();
  const char* what = cudaGetErrorName(error);
  if (cuda_is_sticky(error)) {
    return Error{ErrorCode::device_lost,
                 fmt::format("{}: {}: the device is lost to this process; start another, or use another device", call, what)};
  }
  return Error{ErrorCode::device_failed, fmt::format("{}: {}", call, what)};
}

}  // namespace troupe::device
