#include "device/cuda/open.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "device/cuda/errors.h"

namespace troupe::device {
namespace {

Error unusable(std::uint32_t index, const std::string& why) {
  return Error{ErrorCode::unsupported, fmt::format("cuda:{} cannot be used: {}; use the host device: --device host:0", index, why)};
}

// What the kernels are compiled for at the least (tools/bazel/cuda.bzl): no earlier device finds code of its own in this program.
constexpr int kLeastMajor = 8;

// The driver's version answers 0 where there is no driver.
std::string why_no_driver() {
  int version = 0;
  (void)cudaDriverGetVersion(&version);
  if (version == 0) return "this machine has no NVIDIA driver, or none that this process can load";
  return fmt::format("the NVIDIA driver is for CUDA {}.{}, and this build needs one for CUDA {}", version / 1000, version % 1000 / 10,
                     CUDART_VERSION / 1000);
}

}  // namespace

Result<cudaStream_t> open_cuda_device(std::uint32_t index) {
  const auto unusable_for = [&](const char* what, cudaError_t error) {
    return unusable(index, fmt::format("{} ({})", what, cuda_error(error, "CUDA").what));
  };
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error == cudaErrorInsufficientDriver) {
    return unusable_for(why_no_driver().c_str(), error);
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
  int pools = 0, major = 0, minor = 0;
  for (const auto& [value, attribute] : {std::pair{&pools, cudaDevAttrMemoryPoolsSupported},
                                         {&major, cudaDevAttrComputeCapabilityMajor},
                                         {&minor, cudaDevAttrComputeCapabilityMinor}}) {
    if (const cudaError_t error = cudaDeviceGetAttribute(value, attribute, device); error != cudaSuccess) {
      return unusable_for("the device does not say what it can", error);
    }
  }
  if (major < kLeastMajor) {
    return unusable(index, fmt::format("the device is of compute capability {}.{}, and the kernels need {}.0", major, minor, kLeastMajor));
  }
  if (pools == 0) return unusable(index, "the device has no memory pools (cudaMallocAsync)");
  cudaStream_t memory_stream = nullptr;
  if (const cudaError_t error = cudaStreamCreateWithFlags(&memory_stream, cudaStreamNonBlocking); error != cudaSuccess) {
    return unusable_for("the device gives no stream", error);
  }
  return memory_stream;
}

}  // namespace troupe::device
