#include "device/cuda/open.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "device/cuda/errors.h"

namespace troupe::device {
namespace {

Error unusable(std::uint32_t index, const std::string& why) {
  return Error{ErrorCode::unsupported, fmt::format("cuda:{} cannot be used: {}; use the host device: --device host:0", index, why)};
}

}  // namespace

Result<cudaStream_t> open_cuda_device(std::uint32_t index) {
  const auto unusable_for = [&](const char* what, cudaError_t error) {
    return unusable(index, fmt::format("{} ({})", what, cuda_error(error, "CUDA").what));
  };
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error == cudaErrorInsufficientDriver) {
    return unusable_for("this machine has no NVIDIA driver, or one too old for this build", error);
  } else if (error == cudaErrorNoDevice) {
    return unusable_for("this machine has no NVIDIA device", error);
  } else if (error != cudaSuccess) {
    return unusable_for("the devices cannot be counted", error);
  }
  if (index >= static_cast<std::uint32_t>(std::max(count, 0))) {
    return unusable(index, fmt::format("this machine has {} NVIDIA device{}, counted from 0", count, count == 1 ? "" : "s"));
  }
  const int device = static_cast<int>(index);
  if (const cudaError_t error = cudaSetDevice(device); error != cudaSuccess) return unusable_for("the device cannot be set", error);
  int pools = 0;
  if (const cudaError_t error = cudaDeviceGetAttribute(&pools, cudaDevAttrMemoryPoolsSupported, device); error != cudaSuccess) {
    return unusable_for("the device does not say what it can", error);
  }
  if (pools == 0) return unusable(index, "the device has no memory pools (cudaMallocAsync)");
  cudaStream_t memory_stream = nullptr;
  if (const cudaError_t error = cudaStreamCreateWithFlags(&memory_stream, cudaStreamNonBlocking); error != cudaSuccess) {
    return unusable_for("the device gives no stream", error);
  }
  return memory_stream;
}

}  // namespace troupe::device
