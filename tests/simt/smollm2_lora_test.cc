// The default model's adapters on the CUDA kernels, without a GPU: logits and a few greedy ids made by other software, in one
// batch with the base model.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "tests/golden/lanes.h"
#include "tests/simt/simt_llama.h"

namespace troupe::simt {
namespace {

using golden::Lane;

TEST(SimtSmolLm2, AdaptersMixed) {
  const char* path = std::getenv("TROUPE_DEFAULT_MODEL");
  if (path == nullptr || !std::filesystem::exists(path))
    GTEST_SKIP() << "TROUPE_DEFAULT_MODEL names no file: the default model was not fetched";
  const std::string folder = "tests/golden/smollm2/";
  const golden::Tolerance tolerance{.deviation = 0.03, .margin = 0.15};
  const std::vector<std::string> names{"pirate", "caps"};
  const auto base = golden::read_cases(folder + "golden.json");
  SimtLlama model(path, {.context = 64, .blocks = 16, .max_loras = 2, .max_lora_rank = 8});
  std::vector<std::vector<golden::Case>> cases{base};
  for (std::uint32_t a = 0; a < names.size(); ++a) {
    cases.push_back(golden::read_cases(folder + "adapters/" + names[a] + "/golden.json"));
    model.load_adapter(a + 1, folder + "adapters/" + names[a]);
  }
  constexpr std::size_t kCase = 2, kBaseCase = 9, kIds = 4;
  std::vector<Lane> lanes{{.adapter = 1, .c = &cases[1][kCase], .most_greedy = kIds},
                          {.adapter = 0, .c = &cases[0][kBaseCase], .most_greedy = kIds},
                          {.adapter = 2, .c = &cases[2][kCase], .most_greedy = kIds}};
  golden::run_lanes<LlamaRow>(
      lanes, [&](const std::vector<LlamaRow>& rows) { return model.step(rows).logits; }, [&](std::uint32_t slot) { model.release(slot); });
  for (const Lane& lane : lanes) {
    const std::string what = lane.adapter == 0 ? "base" : names[lane.adapter - 1];
    const std::string file = folder + (lane.adapter == 0 ? "" : "adapters/" + what + "/") + "golden.safetensors";
    const golden::Tensor want = golden::read_safetensors(file).at("last_logits." + std::to_string(lane.adapter == 0 ? kBaseCase : kCase));
    const double deviation = golden::deviation_of_best(lane, want);
    EXPECT_LE(deviation, tolerance.deviation) << what;
    const std::size_t compared = golden::expect_greedy(lane, tolerance, what);
    std::printf("%s: deviation %.2e, %zu of %zu greedy ids compared\n", what.c_str(), deviation, compared, kIds);
  }
}

}  // namespace
}  // namespace troupe::simt
