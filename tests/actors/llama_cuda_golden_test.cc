// Greedy ids of reference models in full (tests/golden/README.md; the row for BF16 activations), all prompts of a model at once,
// through the whole runtime on CUDA: the actors, the CUDA model with its graphs, the CUDA driver and the .cu kernels; on a GPU, or
// on the fake runtime and under the SIMT emulation. There the fake has nothing to report afterwards, and nothing is left.
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
    {"tiny-llama", "F32"},  {"tiny-llama", "F16"}, {"tiny-llama", "BF16"},   {"tiny-llama", "Q8_0"},   {"tiny-llama", "Q4_0"},
    {"tiny-llama", "Q4_1"}, {"tiny-llama", ""},    {"tiny-llama-k", "Q4_K"}, {"tiny-llama-k", "Q6_K"}, {"tiny-llama3", "Q8_0"},
    {"tiny-llama3", ""},    {"tiny-mistral", ""},  {"tiny-mistral-swa", ""}, {"tiny-qwen2", "Q8_0"},   {"tiny-qwen2", ""},
    {"tiny-qwen3", "BF16"}, {"tiny-qwen3", ""},    {"tiny-qwen35", ""},
};

struct Wanted {
  golden::Case c;
  std::string adapter;
  std::size_t from = 0;  // ids before it are compared
  std::uint64_t client = 0;
};

// Every greedy id of all cases. Where the reference itself is nearly undecided ours may take the other id: then the rest is asked
// for behind the reference's ids. How many are equal.
std::size_t compare_in_full(CudaRuntime& on, std::vector<Wanted> open) {
  std::uint64_t client = 0;
  std::size_t equal = 0, all = 0, undecided = 0;
  for (const Wanted& w : open) all += w.c.greedy.size();
  while (!open.empty()) {
    for (Wanted& w : open) {
      std::vector<Token> prompt = w.c.prompt;
      prompt.insert(prompt.end(), w.c.greedy.begin(), w.c.greedy.begin() + static_cast<std::ptrdiff_t>(w.from));
      w.client = ++client;
      Request r = greedy(w.client, std::move(prompt), static_cast<std::uint32_t>(w.c.greedy.size() - w.from));
      r.adapter = w.adapter;
      EXPECT_TRUE(on.submit(r));
    }
    const test::Streams got = on.wait();
    std::vector<Wanted> rest;
    for (Wanted& w : open) {
      const std::vector<Token>& ids = got.at(w.client);
      EXPECT_EQ(ids.size(), w.c.greedy.size() - w.from);
      for (std::size_t i = w.from; i - w.from < ids.size(); ++i) {
        if (ids[i - w.from] == w.c.greedy[i]) {
          ++equal;
          continue;
        }
        ++undecided;
        EXPECT_LT(w.c.margin[i], kMargin * w.c.logit_std)
            << w.adapter << " prompt of " << w.c.prompt.size() << ", token " << i << ": " << ids[i - w.from] << ", not " << w.c.greedy[i];
        w.from = i + 1;
        if (w.from < w.c.greedy.size()) rest.push_back(std::move(w));
        break;
      }
    }
    open = std::move(rest);
  }
  EXPECT_EQ(equal + undecided, all);
  std::printf("%zu greedy ids equal, %zu where the reference is nearly undecided\n", equal, undecided);
  return equal;
}

class CudaGolden : public testing::TestWithParam<Tiny> {
 protected:
  void SetUp() override { test::begin_cuda(); }
  void TearDown() override { test::end_cuda(); }
};

TEST_P(CudaGolden, GreedyIdsInFull) {
  const Tiny tiny = GetParam();
  const std::string folder = std::string("tests/golden/") + tiny.model, type = tiny.type;
  std::vector<Wanted> wanted;
  for (golden::Case& c : golden::read_cases(folder + (type.empty() ? "/golden.json" : "/golden." + type + ".json")))
    wanted.push_back({std::move(c), ""});
  ASSERT_FALSE(wanted.empty());
  CudaRuntime on(type.empty() ? folder : folder + "/" + tiny.model + "." + type + ".gguf", test::small_load(2));
  ASSERT_TRUE(on.started()) << on.error().what;
  EXPECT_GT(compare_in_full(on, wanted), 0u);
  (void)on.finish();
  if (const auto calls = test::cuda_calls()) {
    EXPECT_GT(calls->graph_launches, 0u);
    EXPECT_EQ(calls->host_functions, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaGolden, testing::ValuesIn(kTiny), [](const auto& info) {
  std::string s = std::string(info.param.model) + "_" + (*info.param.type == 0 ? "safetensors" : info.param.type);
  std::replace(s.begin(), s.end(), '-', '_');
  return s;
});

// Adapters in one batch with each other and with the base model, loaded while it serves.
TEST(CudaAdapters, GreedyIdsInFull) {
  test::begin_cuda();
  {
    const std::string folder = "tests/golden/tiny-llama/";
    device::LoadOptions load = test::small_load(2);
    load.max_loras = 4;
    load.kv_blocks = 120;
    CudaRuntime on(folder + "tiny-llama.F32.gguf", load);
    ASSERT_TRUE(on.started()) << on.error().what;
    std::vector<Wanted> wanted;
    for (const char* name : {"", "all-r4", "qv-r8", "rslora-r16", "pattern"}) {
      std::string from = folder;
      if (*name != 0) {
        LoraCommand command;
        command.kind = LoraCommand::Kind::promote_disk;
        command.name = name;
        from += std::string("adapters/") + name + "/";
        command.path = from;
        const auto loaded = on.runtime->lora(command);
        ASSERT_TRUE(loaded) << loaded.error().what;
      }
      for (golden::Case& c : golden::read_cases(from + "golden.json")) {
        if (c.prompt.size() > 100) continue;  // the others say as much
        c.greedy.resize(16);
        wanted.push_back({std::move(c), name});
      }
    }
    EXPECT_GT(compare_in_full(on, wanted), 0u);
    (void)on.finish();
  }
  test::end_cuda();
}

TEST(CudaSmolLm2, GreedyIds) {
  const char* path = std::getenv("TROUPE_DEFAULT_MODEL");
  if (path == nullptr || !std::filesystem::exists(path))
    GTEST_SKIP() << "TROUPE_DEFAULT_MODEL names no file: the default model was not fetched";
  test::begin_cuda();
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
  test::end_cuda();
}

}  // namespace
}  // namespace troupe
