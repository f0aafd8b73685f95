// The table of CUDA calls that fail (llama_cuda_faults.h) with a hybrid model: its recurrent state is in versions, and goes to files.
#include "tests/actors/llama_cuda_faults.h"

namespace troupe {
namespace {

using test::Call;

constexpr const char* kHybrid = "tests/golden/tiny-qwen35";

class HybridCudaFault : public test::CudaFault {
 protected:
  HybridCudaFault() { model = kHybrid; }
};
class HybridSpillCudaFault : public test::SpillCudaFault {
 protected:
  HybridSpillCudaFault() { model = kHybrid; }
};

TEST_P(HybridCudaFault, EndsEverythingOnce) { all_lives({1, 2, 7}); }
TEST_P(HybridSpillCudaFault, EndsEverythingOnce) { all_lives({1, 3}); }

// The whole table is the manual test's.
INSTANTIATE_TEST_SUITE_P(Some, HybridCudaFault,
                         testing::Combine(testing::Values(Call::kernel_launch, Call::cudaGraphLaunch), testing::Bool()), test::cell_name);
INSTANTIATE_TEST_SUITE_P(Some, HybridSpillCudaFault, testing::Combine(testing::Values(Call::cudaMemcpyAsync), testing::Bool()),
                         test::cell_name);
INSTANTIATE_TEST_SUITE_P(Table, HybridCudaFault, testing::Combine(testing::ValuesIn(test::kAllCalls), testing::Bool()), test::cell_name);
INSTANTIATE_TEST_SUITE_P(Table, HybridSpillCudaFault, testing::Combine(testing::ValuesIn(test::kCopyCalls), testing::Bool()),
                         test::cell_name);

}  // namespace
}  // namespace troupe
