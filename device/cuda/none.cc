// What a build without the CUDA toolkit has in place of the driver.
#include "device/cuda/driver.h"

namespace troupe::device {

Result<std::unique_ptr<Driver>> make_cuda_driver(const CudaDriverOptions& options) {
  return Error{ErrorCode::unsupported, "cuda:" + std::to_string(options.index) +
                                           " cannot be used: this build has no CUDA; build with --config=cuda where the CUDA toolkit is "
                                           "installed, or use the host device: --device host:0"};
}

}  // namespace troupe::device
