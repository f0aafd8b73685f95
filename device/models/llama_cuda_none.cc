// What a build without the CUDA toolkit has in place of the CUDA model.
#include "device/models/llama_cuda.h"

namespace troupe::device {

Result<std::unique_ptr<LlamaCudaModel>> LlamaCudaModel::create(std::shared_ptr<const TensorSource>, ModelConfig, const LlamaOptions&,
                                                               Driver& driver) {
  return Error{ErrorCode::unsupported, driver.name() +
                                           " runs no model: this build has no CUDA; build with --config=cuda where the CUDA "
                                           "toolkit is installed, or use the host device: --device host:0"};
}

}  // namespace troupe::device
