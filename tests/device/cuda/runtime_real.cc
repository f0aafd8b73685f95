#include "tests/device/cuda/runtime_under_test.h"

namespace troupe::test {

void begin_cuda(std::uint64_t) {}
void end_cuda() {}
std::optional<CudaCalls> cuda_calls() { return std::nullopt; }

}  // namespace troupe::test
