#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "tests/kernels/cuda/machine.h"

namespace troupe::kernels {

struct Machine::State {
  cudaStream_t stream = nullptr;
};

Machine::Machine(std::uint64_t) : state_(std::make_unique<State>()) {
  const cudaError_t made = cudaStreamCreateWithFlags(&state_->stream, cudaStreamNonBlocking);
  EXPECT_EQ(made, cudaSuccess) << cudaGetErrorName(made);
}
Machine::~Machine() { (void)cudaStreamDestroy(state_->stream); }

CudaStream Machine::native() { return state_->stream; }
void Machine::wait() {
  const cudaError_t launched = cudaGetLastError();
  EXPECT_EQ(launched, cudaSuccess) << cudaGetErrorName(launched);
  const cudaError_t ran = cudaStreamSynchronize(state_->stream);
  EXPECT_EQ(ran, cudaSuccess) << cudaGetErrorName(ran);
}
std::optional<std::uint64_t> Machine::launches() const { return std::nullopt; }

}  // namespace troupe::kernels
