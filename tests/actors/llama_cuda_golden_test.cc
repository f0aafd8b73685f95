// Greedy ids of reference models in full (tests/golden/README.md; the row for BF16 activations), all prompts of a model at once,
// through the whole runtime on CUDA: the actors, the CUDA model with its graphs, the CUDA driver on the fake runtime, and the
// very .cu kernels under the SIMT emulation. Afterwards the fake has nothing to report and nothing is left.
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "tests/actors/llama_cuda_rig.h"
#include "tests/golden/golden.h"

namespace troupe {
namespace {

using test::CudaRuntime;
using test::greedy;

constexpr double kMargin = 0.15;  // of logit_std: where the reference's best is that far ahead, ours is the same

struct Tiny {
  const char* model;
  const char* type;  // of a GGUF; "": the safetensors
};
constexpr Tiny kTiny[] = {
    {"tiny-llama", "F32"},    {"tiny-llama", "F16"},    {"tiny-llama", "BF16"},   {"tiny-llama", "Q8_0"}, {"tiny-llama", "Q4_0"},
    {"tiny-llama", "Q4_1"},   {"tiny-llama", ""},       {"tiny-llama-k", "Q4_K"}, {"tiny-llama-k", "Q6_K"}, {"tiny-llama3", "Q8_0"},
    {"tiny-llama3", ""},      {"tiny-mistral", ""},     {"tiny-mistral-swa", ""}, {"tiny-qwen2", "Q8_0"}, {"tiny-qwen2", ""},
    {"tiny-qwen3", "BF16"},   {"tiny-qwen3", ""},
};

class CudaGolden : public testing::TestWithParam<Tiny> {
 protected:
  void SetUp() override { fake_cuda::reset(); }
  void TearDown() override { fake_cuda::expect_clean(); }
};

TEST_P(CudaGolden, GreedyIds) {
  const Tiny tiny = GetParam();
  const std::string folder = std::string("tests/golden/") + tiny.model, type = tiny.type;
  const auto cases = golden::read_cases(folder + (type.empty() ? "/golden.json" : "/golden." + type + ".json"));
  ASSERT_FALSE(cases.empty());
  CudaRuntime on(type.empty() ? folder : folder + "/" + tiny.model + "." + type + ".gguf", test::small_load(2));
  ASSERT_TRUE(on.started()) << on.error().what;
  // Where the reference itself is nearly undecided ours may take the other id: then the rest is asked for behind the reference's.
  struct Open {
    std::size_t k = 0, from = 0;
    std::uint64_t client = 0;
  };
  std::vector<Open> open;
  for (std::size_t k = 0; k < cases.size(); ++k) open.push_back({k, 0, 0});
  std::uint64_t client = 0;
  std::size_t equal = 0, undecided = 0;
  while (!open.empty()) {
    for (Open& o : open) {
      const golden::Case& c = cases[o.k];
      std::vector<Token> prompt = c.prompt;
      prompt.insert(prompt.end(), c.greedy.begin(), c.greedy.begin() + static_cast<std::ptrdiff_t>(o.from));
      o.client = ++client;
      ASSERT_TRUE(on.submit(greedy(o.client, prompt, static_cast<std::uint32_t>(c.greedy.size() - o.from))));
    }
    const test::Streams got = on.wait();
    std::vector<Open> rest;
    for (const Open& o : open) {
      const golden::Case& c = cases[o.k];
      const std::vector<Token>& ids = got.at(o.client);
      ASSERT_EQ(ids.size(), c.greedy.size() - o.from);
      for (std::size_t i = o.from; i < c.greedy.size(); ++i) {
        if (ids[i - o.from] == c.greedy[i]) {
          ++equal;
          continue;
        }
        EXPECT_LT(c.margin[i], kMargin * c.logit_std) << "case " << o.k << " token " << i << ": " << ids[i - o.from] << ", not " << c.greedy[i];
        ++undecided;
        if (i + 1 < c.greedy.size()) rest.push_back({o.k, i + 1, 0});
        break;
      }
    }
    open = std::move(rest);
  }
  (void)on.finish();
  EXPECT_EQ(equal + undecided, cases.size() * cases[0].greedy.size());
  EXPECT_GT(fake_cuda::calls(fake_cuda::Call::cudaGraphLaunch), 0u);
  EXPECT_EQ(fake_cuda::calls(fake_cuda::Call::cudaLaunchHostFunc), 0u);
  std::printf("%s %s: %zu greedy ids equal, %zu where the reference is nearly undecided\n", tiny.model, tiny.type, equal, undecided);
}

INSTANTIATE_TEST_SUITE_P(All, CudaGolden, testing::ValuesIn(kTiny), [](const auto& info) {
  std::string s = std::string(info.param.model) + "_" + (*info.param.type == 0 ? "safetensors" : info.param.type);
  std::replace(s.begin(), s.end(), '-', '_');
  return s;
});

TEST(CudaSmolLm2, GreedyIds) {
  const char* path = std::getenv("TROUPE_DEFAULT_MODEL");
  if (path == nullptr || !std::filesystem::exists(path))
    GTEST_SKIP() << "TROUPE_DEFAULT_MODEL names no file: the default model was not fetched";
  fake_cuda::reset();
  {
    const golden::Case c = golden::read_cases("tests/golden/smollm2/golden.json")[9];
    ASSERT_LE(c.prompt.size(), 16u);
    device::LoadOptions load = test::small_load(2);
    load.kv_blocks = 4;
    load.max_batch = 1;
    CudaRuntime on(path, load);
    ASSERT_TRUE(on.started()) << on.error().what;
    ASSERT_TRUE(on.submit(greedy(1, c.prompt, 4)));
    const std::vector<Token> ids = on.finish().at(1);
    ASSERT_EQ(ids.size(), 4u);
    for (std::size_t i = 0; i < 4; ++i) {
      ASSERT_GE(c.margin[i], kMargin * c.logit_std);
      EXPECT_EQ(ids[i], c.greedy[i]) << i;
    }
  }
  fake_cuda::expect_clean();
}

}  // namespace
}  // namespace troupe
