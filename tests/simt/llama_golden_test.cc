// Whole models on the CUDA kernels, without a GPU: against reference logits and greedy ids made by other software
// (tests/golden/README.md; the row for BF16 activations), and the rule R1 end to end.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "tests/golden/golden.h"
#include "tests/simt/simt_llama.h"

namespace troupe::simt {
namespace {

constexpr double kDeviation = 0.03, kMargin = 0.15;

struct Tiny {
  const char* model;
  const char* type;  // of a GGUF; "": the safetensors
};
constexpr Tiny kTiny[] = {
    {"tiny-llama", "F32"},    {"tiny-llama", "F16"},    {"tiny-llama", "BF16"},   {"tiny-llama", "Q8_0"}, {"tiny-llama", "Q4_0"},
    {"tiny-llama", "Q4_1"},   {"tiny-llama-k", "Q4_K"}, {"tiny-llama-k", "Q6_K"}, {"tiny-llama3", ""},    {"tiny-mistral", ""},
    {"tiny-mistral-swa", ""}, {"tiny-qwen2", ""},       {"tiny-qwen3", "BF16"},   {"tiny-qwen3", ""},     {"tiny-qwen35", ""},
};

std::string path_of(const Tiny& t) {
  const std::string folder = std::string("tests/golden/") + t.model;
  return *t.type == 0 ? folder : folder + "/" + t.model + "." + t.type + ".gguf";
}

std::size_t best(const std::vector<float>& v) { return static_cast<std::size_t>(std::max_element(v.begin(), v.end()) - v.begin()); }

class SimtTiny : public testing::TestWithParam<Tiny> {};

// The prompt in chunks that end where logits are known, then greedy ids by teacher forcing; beside it, in another slot, the
// same greedy ids fed on the device, which must be the argmax of the row before.
TEST_P(SimtTiny, LogitsAndGreedyIds) {
  const Tiny tiny = GetParam();
  const std::string golden_path =
      std::string("tests/golden/") + tiny.model + (*tiny.type == 0 ? "/golden" : std::string("/golden.") + tiny.type);
  const auto cases = golden::read_cases(golden_path + ".json");
  const auto tensors = golden::read_safetensors(golden_path + ".safetensors");
  ASSERT_FALSE(cases.empty());
  SimtLlama model(path_of(tiny), {});
  for (std::size_t k = 0; k < cases.size(); ++k) {
    const golden::Case& c = cases[k];
    const golden::Tensor& want = tensors.at("logits." + std::to_string(k));
    golden::Deviation deviation;
    std::uint32_t begin = 0;
    LlamaAnswer last;
    for (std::size_t i = 0; i < c.logit_positions.size(); ++i) {
      const auto end = static_cast<std::uint32_t>(c.logit_positions[i] + 1);
      last = model.step({{.slot = 0, .position = begin, .ids = {c.prompt.begin() + begin, c.prompt.begin() + end}}});
      deviation.add(last.logits[0].data(), want.row(i), last.logits[0].size());
      begin = end;
    }
    EXPECT_LE(deviation.value(), kDeviation) << "case " << k;
    ASSERT_EQ(begin, c.prompt.size());
    std::size_t compared = 0;
    for (std::size_t i = 0; i < c.greedy.size(); ++i) {
      ASSERT_EQ(last.rows[0].status, kernels::Status::ok);
      ASSERT_EQ(last.rows[0].id, best(last.logits[0]));
      if (c.margin[i] >= kMargin * c.logit_std) {
        ++compared;
        EXPECT_EQ(last.rows[0].id, c.greedy[i]) << "case " << k << " step " << i;
      }
      if (i + 1 < c.greedy.size()) last = model.step({{.slot = 0, .position = begin++, .ids = {c.greedy[i]}}});
    }
    EXPECT_GT(compared, 0u);
    std::printf("%s %s case %zu: deviation %.2e, %zu of %zu greedy ids compared\n", tiny.model, tiny.type, k, deviation.value(), compared,
                c.greedy.size());
    model.release(0);
  }
}

INSTANTIATE_TEST_SUITE_P(All, SimtTiny, testing::ValuesIn(kTiny), [](const auto& info) {
  std::string s = std::string(info.param.model) + "_" + (*info.param.type == 0 ? "safetensors" : info.param.type);
  std::replace(s.begin(), s.end(), '-', '_');
  return s;
});

// R1: a sequence alone, prefilled at once and decoded from host ids, against the same one in another slot and other blocks,
// in chunks, beside three others, fed on the device, with another order of threads and the other attention.
class SimtExact : public testing::TestWithParam<Tiny> {};

TEST_P(SimtExact, BitsDependOnTheTokensAlone) {
  const std::string path = path_of(GetParam());
  const auto cases = golden::read_cases("tests/golden/tiny-llama/golden.Q4_1.json");
  const std::vector<std::uint32_t>& prompt = cases[2].prompt;
  const auto n = static_cast<std::uint32_t>(prompt.size());
  std::vector<std::vector<float>> alone;
  std::vector<std::uint32_t> ids;
  {
    SimtLlama model(path, {.seed = 1, .max_decode_tokens = 64});
    LlamaAnswer a = model.step({{.slot = 0, .position = 0, .ids = prompt}});
    for (std::uint32_t i = 0; i < 6; ++i) {
      alone.push_back(a.logits[0]);
      ids.push_back(a.rows[0].id);
      a = model.step({{.slot = 0, .position = n + i, .ids = {ids.back()}}});
    }
  }
  SimtLlama model(path, {.seed = 99, .max_decode_tokens = 0});
  const auto other = [&](std::uint32_t slot, std::uint32_t position, std::uint32_t count) {
    return LlamaRow{
        .slot = slot, .position = position, .ids = std::vector<std::uint32_t>(count, 7 + slot + position), .wants = slot % 2 == 0};
  };
  model.step({other(1, 0, 9), {.slot = 5, .position = 0, .ids = {prompt.begin(), prompt.begin() + 10}, .wants = false}});
  LlamaAnswer a = model.step({other(2, 0, 3), {.slot = 5, .position = 10, .ids = {prompt.begin() + 10, prompt.end()}}, other(1, 9, 1)});
  for (std::uint32_t i = 0; i < 6; ++i) {
    const std::size_t row = i == 0 ? 1 : 0, output = i == 0 ? 1 : 0;
    ASSERT_EQ(std::memcmp(a.logits[output].data(), alone[i].data(), alone[i].size() * sizeof(float)), 0) << i;
    ASSERT_EQ(a.rows[row].id, ids[i]);
    a = model.step(
        {{.slot = 5, .position = n + i, .feed_row = static_cast<std::uint32_t>(row)}, other(2, 3 + i, 1), other(1, 10 + 2 * i, 2)});
    ASSERT_EQ(a.rows[0].input, ids[i]);
    ASSERT_EQ(a.rows[0].status, kernels::Status::ok);
  }
}

INSTANTIATE_TEST_SUITE_P(Both, SimtExact, testing::Values(Tiny{"tiny-llama", "Q4_1"}, Tiny{"tiny-qwen35", ""}),
                         [](const auto& info) { return *info.param.type == 0 ? "hybrid" : "attention"; });

// The default model: a prompt of 11 tokens, and 4 greedy ids fed on the device.
TEST(SimtSmolLm2, GreedyIds) {
  const char* path = std::getenv("TROUPE_DEFAULT_MODEL");
  if (path == nullptr || !std::filesystem::exists(path))
    GTEST_SKIP() << "TROUPE_DEFAULT_MODEL names no file: the default model was not fetched";
  const auto cases = golden::read_cases("tests/golden/smollm2/golden.json");
  const golden::Case& c = cases[9];
  ASSERT_LE(c.prompt.size(), 16u);
  SimtLlama model(path, {.context = 32, .blocks = 4});
  LlamaAnswer a = model.step({{.slot = 0, .position = 0, .ids = c.prompt}});
  const golden::Tensor want = golden::read_safetensors("tests/golden/smollm2/golden.safetensors").at("last_logits.9");
  double mean = 0.0, error = 0.0;
  const std::size_t n = want.shape[1];
  const auto difference = [&](std::size_t i) { return a.logits[0][static_cast<std::size_t>(want.values[i])] - want.row(1)[i]; };
  for (std::size_t i = 0; i < n; ++i) mean += difference(i) / static_cast<double>(n);
  for (std::size_t i = 0; i < n; ++i) error += std::pow(difference(i) - mean, 2.0) / static_cast<double>(n);
  const double deviation = std::sqrt(error) / c.logit_std;
  std::printf("smollm2: deviation %.2e\n", deviation);
  EXPECT_LE(deviation, kDeviation);
  for (std::uint32_t i = 0; i < 4; ++i) {
    ASSERT_GE(c.margin[i], kMargin * c.logit_std);
    ASSERT_EQ(a.rows[0].id, c.greedy[i]) << i;
    if (i + 1 < 4) a = model.step({{.slot = 0, .position = static_cast<std::uint32_t>(c.prompt.size()) + i}});
  }
  std::printf("smollm2: %.1f million switches\n", static_cast<double>(model.machine().switches()) / 1e6);
}

}  // namespace
}  // namespace troupe::simt
