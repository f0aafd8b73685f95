#include "tests/device/cuda/runtime_under_test.h"
#include "tests/fake_cuda/fixture.h"

namespace troupe::test {

void begin_cuda(std::uint64_t jitter) { fake_cuda::reset({.jitter = jitter}); }
void end_cuda() { fake_cuda::expect_clean(); }
std::optional<CudaCalls> cuda_calls() {
  return CudaCalls{fake_cuda::calls(fake_cuda::Call::cudaGraphLaunch), fake_cuda::calls(fake_cuda::Call::cudaLaunchHostFunc)};
}

}  // namespace troupe::test
