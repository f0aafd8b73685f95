// Adapters on the CUDA kernels, without a GPU: against reference logits and greedy ids made by other software (tests/golden/
// README.md; the row for BF16 activations), mixed in one batch with each other and with the base model, and alone: then with
// the same bits (R1).
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "tests/golden/lanes.h"
#include "tests/simt/simt_llama.h"

namespace troupe::simt {
namespace {

using golden::Lane;

constexpr golden::Tolerance kTolerance{.deviation = 0.03, .margin = 0.15};

void run(SimtLlama& model, std::vector<Lane>& lanes) {
  golden::run_lanes<LlamaRow>(
      lanes, [&](const std::vector<LlamaRow>& rows) { return model.step(rows).logits; }, [&](std::uint32_t slot) { model.release(slot); });
}

bool same_logits(const Lane& a, const Lane& b) {
  if (a.logits.size() != b.logits.size()) return false;
  for (std::size_t i = 0; i < a.logits.size(); ++i) {
    if (std::memcmp(a.logits[i].data(), b.logits[i].data(), a.logits[i].size() * sizeof(float)) != 0) return false;
  }
  return true;
}

struct Adapted {
  const char* model;
  const char* file;  // a GGUF, whose rows of q and k are permuted; "": the safetensors
  std::vector<std::string> names;
  double deviation = kTolerance.deviation;  // of a case
};
class SimtAdapters : public testing::TestWithParam<Adapted> {};

TEST_P(SimtAdapters, LogitsAndGreedyIdsAloneAndMixed) {
  const std::string folder = std::string("tests/golden/") + GetParam().model + "/";
  const std::vector<std::string>& names = GetParam().names;
  std::vector<std::vector<golden::Case>> cases{golden::read_cases(folder + "golden.json")};
  std::vector<std::map<std::string, golden::Tensor>> tensors{golden::read_safetensors(folder + "golden.safetensors")};
  for (const auto& name : names) {
    cases.push_back(golden::read_cases(folder + "adapters/" + name + "/golden.json"));
    tensors.push_back(golden::read_safetensors(folder + "adapters/" + name + "/golden.safetensors"));
  }
  const auto load = [&](SimtLlama& model) {
    for (std::uint32_t i = 0; i < names.size(); ++i) model.load_adapter(i + 1, folder + "adapters/" + names[i]);
  };
  std::vector<Lane> mixed;  // every case of every adapter and of the base model, side by side
  for (std::size_t k = 0; k < cases[0].size(); ++k) {
    for (std::uint32_t a = 0; a < cases.size(); ++a) {
      ASSERT_EQ(cases[a].size(), cases[0].size());
      mixed.push_back({.adapter = a, .c = &cases[a][k], .most_greedy = 12});
    }
  }
  const SimtLlamaOptions options{.slots = 32, .blocks = 256, .max_loras = 4, .max_step_tokens = 1024};
  SimtLlama model(folder + GetParam().file, options);
  load(model);
  run(model, mixed);
  std::size_t compared = 0;
  std::vector<golden::Deviation> of_adapter(cases.size());
  for (std::size_t i = 0; i < mixed.size(); ++i) {
    const Lane& lane = mixed[i];
    const std::size_t k = i / cases.size();
    const std::string what = (lane.adapter == 0 ? "base" : names[lane.adapter - 1]) + " case " + std::to_string(k);
    const golden::Tensor& want = tensors[lane.adapter].at("logits." + std::to_string(k));
    golden::Deviation of_case;
    for (std::size_t p = 0; p < lane.c->logit_positions.size(); ++p) {
      for (golden::Deviation* d : {&of_case, &of_adapter[lane.adapter]}) d->add(lane.logits[p].data(), want.row(p), lane.logits[p].size());
    }
    EXPECT_LE(of_case.value(), GetParam().deviation) << what;
    compared += golden::expect_greedy(lane, kTolerance, what);
  }
  for (std::uint32_t a = 0; a < cases.size(); ++a)
    std::printf("%s: deviation %.2e\n", a == 0 ? "base" : names[a - 1].c_str(), of_adapter[a].value());
  std::printf("%zu greedy ids compared\n", compared);

  // Alone: another order of threads, other blocks, and every step by the prefill attention.
  SimtLlama other(folder + GetParam().file, {.seed = 99, .max_decode_tokens = 0, .max_loras = 4});
  load(other);
  for (std::size_t i = 0; i < 3 * cases.size(); ++i) {
    std::vector<Lane> alone{{.adapter = mixed[i].adapter, .c = mixed[i].c, .most_greedy = 12}};
    run(other, alone);
    EXPECT_TRUE(same_logits(alone[0], mixed[i])) << i;
    if (mixed[i].adapter != 0) {
      std::vector<Lane> base{{.adapter = 0, .c = mixed[i].c, .most_greedy = 1}};
      run(other, base);
      EXPECT_NE(std::memcmp(base[0].logits[0].data(), mixed[i].logits[0].data(), base[0].logits[0].size() * sizeof(float)), 0) << i;
    }
  }
}

// Of the hybrid model one case is a single row of logits, on which rounding alone weighs much: the host's exact kernels are 0.036 off
// there if the activations that their products read are rounded to BF16, and 2e-6 if not.
const std::vector<std::string> kOfLlama{"all-r4", "qv-r8", "rslora-r16", "pattern"};
INSTANTIATE_TEST_SUITE_P(All, SimtAdapters,
                         testing::Values(Adapted{"tiny-llama", "", kOfLlama}, Adapted{"tiny-llama", "tiny-llama.F32.gguf", kOfLlama},
                                         Adapted{"tiny-qwen35", "", {"all-r4", "qo-r8"}, 0.045}),
                         [](const auto& info) {
                           const std::string model = info.param.model;
                           return model == "tiny-qwen35" ? std::string("hybrid")
                                                         : std::string(*info.param.file == 0 ? "safetensors" : "F32");
                         });

// Quantized weights below, and steps in which every row is a run of its own.
TEST(SimtAdapters, NobodyInABatchChangesAnothersBits) {
  const std::string folder = "tests/golden/tiny-llama/", file = folder + "tiny-llama.Q4_1.gguf";
  const auto cases = golden::read_cases(folder + "golden.json");
  SimtLlama plain(file, {}), model(file, {.seed = 5, .max_loras = 2});
  model.load_adapter(2, folder + "adapters/all-r4");
  std::vector<Lane> a{{.adapter = 0, .c = &cases[1], .most_greedy = 6}};
  std::vector<Lane> b{{.adapter = 2, .c = &cases[2], .most_greedy = 6}, a[0], {.adapter = 2, .c = &cases[1], .most_greedy = 6}};
  run(plain, a);
  run(model, b);
  EXPECT_TRUE(same_logits(a[0], b[1]));
  EXPECT_FALSE(same_logits(a[0], b[2]));
  std::vector<Lane> alone{{.adapter = 2, .c = &cases[1], .most_greedy = 6}};
  run(model, alone);
  EXPECT_TRUE(same_logits(alone[0], b[2]));
}

}  // namespace
}  // namespace troupe::simt
