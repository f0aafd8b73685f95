// The CUDA runtime that a test is linked with: the fake (runtime_fake.cc), or NVIDIA's with a GPU behind it (runtime_real.cc).
// Tests that only watch what a whole run gives are the same on both.
#pragma once

#include <cstdint>
#include <optional>

namespace troupe::test {

// Between runs. The fake starts afresh; if jitter is not 0, its streams dawdle by that seed.
void begin_cuda(std::uint64_t jitter = 0);
// After all that used it is gone. Fails the test for what the fake reports, and for what was not given back.
void end_cuda();

struct CudaCalls {
  std::uint64_t graph_launches = 0, host_functions = 0;
};
std::optional<CudaCalls> cuda_calls();  // since begin_cuda; NVIDIA's does not tell

}  // namespace troupe::test
