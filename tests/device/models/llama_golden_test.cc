// The forward pass against reference logits and greedy ids made by other software (tests/golden/README.md).
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "tests/device/models/llama_rig.h"
#include "tests/golden/golden.h"

namespace troupe::device {
namespace {

struct Tolerance {
  double deviation;
  double margin;  // greedy ids must be equal where the reference's margin is at least this much of logit_std
};
Tolerance tiny_tolerance(bool exact) { return exact ? Tolerance{1e-3, 1e-2} : Tolerance{0.10, 0.5}; }

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

class TinyModels : public testing::TestWithParam<std::tuple<Tiny, bool>> {};

TEST_P(TinyModels, LogitsAndGreedyIds) {
  const auto [tiny, exact] = GetParam();
  const std::string folder = std::string("tests/golden/") + tiny.model + "/", type = tiny.type;
  const std::string golden_path = folder + (type.empty() ? "golden" : "golden." + type);
  const auto cases = golden::read_cases(golden_path + ".json");
  const auto tensors = golden::read_safetensors(golden_path + ".safetensors");
  ASSERT_FALSE(cases.empty());
  LlamaOptions o;
  o.exact = exact;
  LlamaRig rig(type.empty() ? folder : folder + tiny.model + "." + type + ".gguf", o);
  const Tolerance tolerance = tiny_tolerance(exact);
  for (std::size_t k = 0; k < cases.size(); ++k) {
    const golden::Case& c = cases[k];
    const golden::Tensor& want = tensors.at("logits." + std::to_string(k));
    golden::Deviation deviation;
    std::uint32_t begin = 0;
    std::vector<float> last;
    for (std::size_t i = 0; i < c.logit_positions.size(); ++i) {  // chunks that end where logits are known
      const auto end = static_cast<std::uint32_t>(c.logit_positions[i] + 1);
      last = rig.run({{.slot = 0, .position = begin, .ids = {c.prompt.begin() + begin, c.prompt.begin() + end}}}).logits[0];
      deviation.add(last.data(), want.row(i), last.size());
      begin = end;
    }
    EXPECT_LE(deviation.value(), tolerance.deviation) << "case " << k;
    ASSERT_EQ(begin, c.prompt.size());
    std::size_t compared = 0;
    for (std::size_t i = 0; i < c.greedy.size(); ++i) {
      if (c.margin[i] >= tolerance.margin * c.logit_std) {
        ++compared;
        EXPECT_EQ(std::max_element(last.begin(), last.end()) - last.begin(), c.greedy[i]) << "case " << k << " step " << i;
      }
      if (i + 1 == c.greedy.size()) break;
      last = rig.run({{.slot = 0, .position = begin++, .ids = {c.greedy[i]}}}).logits[0];
    }
    EXPECT_GT(compared, 0u);
    std::printf("%s %s %s case %zu: deviation %.2e, %zu of %zu greedy ids compared\n", tiny.model, type.c_str(), exact ? "exact" : "fast",
                k, deviation.value(), compared, c.greedy.size());
    rig.release(0);
  }
}

std::string test_name(const Tiny& t, bool exact) {
  std::string s = std::string(t.model) + "_" + (*t.type == 0 ? "safetensors" : t.type) + (exact ? "_exact" : "_fast");
  std::replace(s.begin(), s.end(), '-', '_');
  return s;
}
INSTANTIATE_TEST_SUITE_P(All, TinyModels, testing::Combine(testing::ValuesIn(kTiny), testing::Bool()),
                         [](const auto& info) { return test_name(std::get<0>(info.param), std::get<1>(info.param)); });

class SmolLm2 : public testing::TestWithParam<bool> {};

TEST_P(SmolLm2, LogitsAndGreedyIds) {
  const bool exact = GetParam();
  const char* path = std::getenv("TROUPE_DEFAULT_MODEL");
  if (path == nullptr || !std::filesystem::exists(path))
    GTEST_SKIP() << "TROUPE_DEFAULT_MODEL names no file: the default model was not fetched";
  const std::string folder = "tests/golden/smollm2/";
  const auto cases = golden::read_cases(folder + "golden.json");
  const auto tensors = golden::read_safetensors(folder + "golden.safetensors");
  LlamaOptions o;
  o.exact = exact;
  o.threads = 2;
  o.context_limit = 2048;
  LlamaRig rig(path, o);
  const Tolerance tolerance = exact ? Tolerance{1e-3, 1e-2} : Tolerance{0.10, 0.15};
  using Clock = std::chrono::steady_clock;
  std::vector<std::vector<float>> last(cases.size());
  for (std::size_t k = 0; k < cases.size(); ++k) {
    const auto& prompt = cases[k].prompt;
    const auto start = Clock::now();
    for (std::uint32_t at = 0; at < prompt.size();) {
      const auto end = std::min<std::uint32_t>(at + 512, static_cast<std::uint32_t>(prompt.size()));
      auto r = rig.run({{.slot = static_cast<std::uint32_t>(k),
                         .position = at,
                         .ids = {prompt.begin() + at, prompt.begin() + end},
                         .wants = end == prompt.size()}});
      at = end;
      last[k] = std::move(r.logits[0]);
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    const golden::Tensor& t = tensors.at("last_logits." + std::to_string(k));
    // Full rows, or the 512 best ids and their logits: then the spread is that of all logits.
    std::vector<float> ours, want;
    if (t.shape.size() == 1) {
      ours = last[k], want = t.values;
    } else {
      for (std::size_t i = 0; i < t.shape[1]; ++i)
        ours.push_back(last[k][static_cast<std::size_t>(t.values[i])]), want.push_back(t.row(1)[i]);
    }
    double mean = 0.0, error = 0.0;
    for (std::size_t i = 0; i < ours.size(); ++i) mean += (ours[i] - want[i]) / static_cast<double>(ours.size());
    for (std::size_t i = 0; i < ours.size(); ++i) error += std::pow(ours[i] - want[i] - mean, 2.0);
    const double deviation = std::sqrt(error / static_cast<double>(ours.size())) / cases[k].logit_std;
    std::printf("%s case %zu: deviation %.2e, prefill of %zu tokens at %.0f tokens/s\n", exact ? "exact" : "fast", k, deviation,
                prompt.size(), static_cast<double>(prompt.size()) / seconds);
    EXPECT_LE(deviation, tolerance.deviation) << "case " << k;
  }
  // Greedy by teacher forcing, all cases in one batch.
  const std::size_t steps = cases[0].greedy.size();
  const auto start = Clock::now();
  std::size_t compared = 0;
  for (std::size_t i = 0; i < steps; ++i) {
    std::vector<RigRow> rows;
    for (std::size_t k = 0; k < cases.size(); ++k) {
      const golden::Case& c = cases[k];
      if (c.margin[i] >= tolerance.margin * c.logit_std) {
        ++compared;
        EXPECT_EQ(std::max_element(last[k].begin(), last[k].end()) - last[k].begin(), c.greedy[i]) << "case " << k << " step " << i;
      }
      rows.push_back(
          {.slot = static_cast<std::uint32_t>(k), .position = static_cast<std::uint32_t>(c.prompt.size() + i), .ids = {c.greedy[i]}});
    }
    if (i + 1 < steps) last = rig.run(rows).logits;
  }
  EXPECT_GT(compared, steps);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  std::printf("%s: %zu ids compared; batch of %zu decoded at %.0f tokens/s\n", exact ? "exact" : "fast", compared, cases.size(),
              static_cast<double>((steps - 1) * cases.size()) / seconds);
}

INSTANTIATE_TEST_SUITE_P(Modes, SmolLm2, testing::Bool(), [](const auto& info) { return info.param ? "exact" : "fast"; });

}  // namespace
}  // namespace troupe::device
