// A rig (llama_rig.h) with the CUDA model on the CUDA driver, over the fake runtime and the SIMT emulation of its kernels.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "device/cuda/driver.h"
#include "device/models/llama_cuda.h"
#include "tests/device/models/llama_rig.h"
#include "tests/fake_cuda/fixture.h"

namespace troupe::device {

inline std::unique_ptr<Driver> cuda_driver() {
  auto made = make_cuda_driver({});
  if (!made) throw std::runtime_error(made.error().what);
  return std::move(made.value());
}

class CudaRig : public LlamaRig {
 public:
  explicit CudaRig(const std::string& path, const LlamaOptions& options, std::uint64_t seed = 1)
      : LlamaRig(path, options, cuda_driver(), &make_model<LlamaCudaModel>, seed) {}
  GraphFigures figures() { return static_cast<LlamaCudaModel&>(model()).graph_figures(); }
};

}  // namespace troupe::device
