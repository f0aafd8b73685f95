// Models on CUDA with cuBLASLt in the place of our products (a library of tests, on the fake runtime's streams): they decode what
// they decode without it, replayed as graphs too; and what is said where it is not to be had.
#include "tests/actors/llama_cuda_rig.h"
#include "tests/fake_cublaslt/fixture.h"
#include "tests/fake_cuda/fixture.h"

namespace troupe {
namespace {

using test::CudaRuntime;
using test::greedy;
using test::Streams;

const std::string kBf16 = "tests/golden/tiny-llama/tiny-llama.BF16.gguf";

void on_stream(void* stream, void (*run)(void*), void (*release)(void*), void* context) {
  const std::shared_ptr<void> product(context, release);
  fake_cuda::launch(static_cast<cudaStream_t>(stream), [run, product] {
    run(product.get());
    return cudaSuccess;
  });
}

device::LoadOptions with_cublaslt() {
  device::LoadOptions load = test::small_load(2);
  load.cublaslt = true;
  load.cublaslt_path = test::kFakeCublasLt;
  return load;
}

Streams run(const std::string& model, const device::LoadOptions& load, std::string* arithmetic = nullptr) {
  CudaRuntime on(model, load);
  if (!on.started()) {
    ADD_FAILURE() << on.error().what;
    return {};
  }
  if (arithmetic != nullptr) *arithmetic = on.runtime->model().arithmetic_id;
  for (std::uint64_t client = 1; client <= 3; ++client) {
    std::vector<Token> prompt;
    for (std::uint64_t i = 0; i < 3 + client * 5; ++i) prompt.push_back(static_cast<Token>((client * 131 + i * 37) % 500));
    EXPECT_TRUE(on.submit(greedy(client, std::move(prompt), 8)));
  }
  return on.finish();
}

class CublasLtModel : public testing::Test {
 protected:
  void SetUp() override {
    fake_cuda::reset({.jitter = 5});
    fake.use(&on_stream);
  }
  void TearDown() override {
    fake_cuda::expect_clean();
    fake_cuda::reset();
  }
  test::FakeCublasLt fake;
};

TEST_F(CublasLtModel, DecodesWhatItDecodesWithout) {
  // Qwen2 has biases, Qwen3.5 recurrent layers.
  for (const std::string& model : {kBf16, std::string("tests/golden/tiny-qwen2"), std::string("tests/golden/tiny-qwen35")}) {
    std::string ours, theirs;
    const Streams want = run(model, test::small_load(2), &ours);
    const std::uint64_t before = fake.made();
    EXPECT_EQ(run(model, with_cublaslt(), &theirs), want);
    EXPECT_GT(fake.made(), before + 50);
    EXPECT_EQ(theirs, ours + "/cublaslt");
  }
}

// A product that it refuses fails its step, which is done again (R7).
TEST_F(CublasLtModel, AProductThatFailsIsMadeAgain) {
  const Streams want = run(kBf16, test::small_load(2));
  fake.fail(40, 14);
  EXPECT_EQ(run(kBf16, with_cublaslt()), want);
}

TEST_F(CublasLtModel, WithoutTheLibraryOneSentenceSaysWhatToDo) {
  device::LoadOptions load = with_cublaslt();
  load.cublaslt_path = "/nowhere/libcublasLt.so";
  CudaRuntime on(kBf16, load);
  ASSERT_FALSE(on.started());
  EXPECT_EQ(on.error().code, ErrorCode::unsupported);
  EXPECT_NE(on.error().what.find("/nowhere/libcublasLt.so"), std::string::npos) << on.error().what;
  EXPECT_NE(on.error().what.find("TROUPE_CUBLASLT"), std::string::npos) << on.error().what;
}

TEST_F(CublasLtModel, AModelWithoutBf16WeightsIsRefused) {
  CudaRuntime on("tests/golden/tiny-llama/tiny-llama.Q8_0.gguf", with_cublaslt());
  ASSERT_FALSE(on.started());
  EXPECT_EQ(on.error().code, ErrorCode::unsupported);
  EXPECT_NE(on.error().what.find("has none"), std::string::npos) << on.error().what;
}

TEST(CublasLtHost, IsForCudaAlone) {
  device::LoadOptions load = with_cublaslt();
  const auto loaded = device::load_model(kBf16, load);
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, ErrorCode::unsupported);
}

}  // namespace
}  // namespace troupe
