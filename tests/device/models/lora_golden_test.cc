// Adapters against reference logits and greedy ids made by other software, alone and mixed in one batch with each other and
// with the base model: then with the same bits (R1).
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "tests/device/models/llama_rig.h"
#include "tests/golden/lanes.h"

namespace troupe::device {
namespace {

using golden::Lane;
using golden::Tolerance;

void load(LlamaRig& rig, const std::string& folder, const std::vector<std::string>& names) {
  for (std::uint32_t i = 0; i < names.size(); ++i) {
    const auto loaded = rig.model().load_adapter(i + 1, folder + "adapters/" + names[i]);
    ASSERT_TRUE(loaded) << loaded.error().what;
    ASSERT_TRUE(rig.model().show_adapter(i + 1));
  }
}

void run(LlamaRig& rig, std::vector<Lane>& lanes) {
  golden::run_lanes<RigRow>(
      lanes, [&](const std::vector<RigRow>& rows) { return rig.run(rows).logits; }, [&](std::uint32_t slot) { rig.release(slot); });
}

struct Setting {
  const char* file;  // "": the safetensors, whose rows of q and k are as PEFT's; a GGUF's are permuted
  bool exact;
  const char* model = "tiny-llama";
};

class TinyAdapters : public testing::TestWithParam<Setting> {};

TEST_P(TinyAdapters, LogitsAndGreedyIdsAloneAndMixed) {
  const auto [file, exact, model] = GetParam();
  const std::string folder = "tests/golden/" + std::string(model) + "/";
  const bool hybrid = folder.find("qwen35") != std::string::npos;
  const auto names =
      hybrid ? std::vector<std::string>{"all-r4", "qo-r8"} : std::vector<std::string>{"all-r4", "qv-r8", "rslora-r16", "pattern"};
  LlamaOptions o;
  o.exact = exact;
  o.threads = 2;
  o.max_step_tokens = 2048;
  o.max_loras = 4;
  LlamaRig rig(folder + file, o);
  load(rig, folder, names);
  const Tolerance tolerance = exact ? Tolerance{1e-3, 1e-2} : Tolerance{0.10, 0.5};
  std::vector<std::vector<golden::Case>> cases{golden::read_cases(folder + "golden.json")};
  std::vector<std::map<std::string, golden::Tensor>> tensors{golden::read_safetensors(folder + "golden.safetensors")};
  for (const auto& name : names) {
    cases.push_back(golden::read_cases(folder + "adapters/" + name + "/golden.json"));
    tensors.push_back(golden::read_safetensors(folder + "adapters/" + name + "/golden.safetensors"));
  }
  std::vector<Lane> mixed;  // every case of every adapter and of the base model, side by side
  for (std::uint32_t a = 0; a < cases.size(); ++a) {
    ASSERT_FALSE(cases[a].empty());
    for (const golden::Case& c : cases[a]) mixed.push_back({.adapter = a, .c = &c});
  }
  ASSERT_LE(mixed.size(), o.max_rows);
  run(rig, mixed);
  std::size_t at = 0, compared = 0;
  for (std::uint32_t a = 0; a < cases.size(); ++a) {
    golden::Deviation deviation;
    for (std::size_t k = 0; k < cases[a].size(); ++k, ++at) {
      const std::string what = (a == 0 ? "base" : names[a - 1]) + " case " + std::to_string(k);
      const golden::Tensor& want = tensors[a].at("logits." + std::to_string(k));
      golden::Deviation of_case;
      for (std::size_t i = 0; i < cases[a][k].logit_positions.size(); ++i) {
        of_case.add(mixed[at].logits[i].data(), want.row(i), mixed[at].logits[i].size());
        deviation.add(mixed[at].logits[i].data(), want.row(i), mixed[at].logits[i].size());
      }
      EXPECT_LE(of_case.value(), tolerance.deviation) << what;
      compared += golden::expect_greedy(mixed[at], tolerance, what);
      std::vector<Lane> alone{{.adapter = a, .c = &cases[a][k]}};
      run(rig, alone);
      ASSERT_EQ(alone[0].logits.size(), mixed[at].logits.size());
      for (std::size_t i = 0; i < alone[0].logits.size(); ++i) {
        EXPECT_TRUE(same_bits(alone[0].logits[i], mixed[at].logits[i])) << what << " logits " << i;
      }
    }
    std::printf("%s %s %s %s: deviation %.2e\n", model, *file == 0 ? "safetensors" : file, exact ? "exact" : "fast",
                a == 0 ? "base" : names[a - 1].c_str(), deviation.value());
  }
  std::printf("%zu greedy ids compared\n", compared);
}

INSTANTIATE_TEST_SUITE_P(All, TinyAdapters,
                         testing::Values(Setting{"", true}, Setting{"", false}, Setting{"tiny-llama.F32.gguf", true},
                                         Setting{"tiny-llama.F32.gguf", false}, Setting{"", true, "tiny-qwen35"},
                                         Setting{"", false, "tiny-qwen35"}),
                         [](const auto& info) {
                           const std::string file = info.param.file;
                           return std::string(std::string_view(info.param.model) == "tiny-llama" ? "" : "hybrid_") +
                                  (file.empty() ? "safetensors" : file.substr(11, file.size() - 16)) +
                                  (info.param.exact ? "_exact" : "_fast");
                         });

// On quantized weights: the base model's bits are those of a model without room for adapters, and an adapter's those that it
// gives alone.
TEST(LlamaLora, NobodyInABatchChangesAnothersBits) {
  const std::string folder = "tests/golden/tiny-llama/";
  const auto cases = golden::read_cases(folder + "golden.json");
  LlamaOptions o;
  LlamaRig plain(folder + "tiny-llama.Q4_1.gguf", o);
  o.max_loras = 2;
  LlamaRig rig(folder + "tiny-llama.Q4_1.gguf", o);
  load(rig, folder, {"all-r4"});
  std::vector<Lane> a{{.adapter = 0, .c = &cases[1]}},
      b{{.adapter = 1, .c = &cases[2]}, {.adapter = 0, .c = &cases[1]}, {.adapter = 1, .c = &cases[1]}};
  run(plain, a);
  run(rig, b);
  ASSERT_EQ(a[0].logits.size(), b[1].logits.size());
  for (std::size_t i = 0; i < a[0].logits.size(); ++i) {
    EXPECT_TRUE(same_bits(a[0].logits[i], b[1].logits[i]));
    EXPECT_FALSE(same_bits(a[0].logits[i], b[2].logits[i]));
  }
  std::vector<Lane> alone{{.adapter = 1, .c = &cases[1]}};
  run(rig, alone);
  for (std::size_t i = 0; i < alone[0].logits.size(); ++i) EXPECT_TRUE(same_bits(alone[0].logits[i], b[2].logits[i]));
}

// What one model gives away is to another the adapter itself: also where ranks that fit are larger, and where the rows of q and k are
// in another order.
TEST(LlamaLora, AnAdapterGoesFromMemoryToMemory) {
  const std::string folder = "tests/golden/tiny-llama/";
  const auto cases = golden::read_cases(folder + "golden.json");
  for (const std::string file : {"", "tiny-llama.F32.gguf"}) {
    LlamaOptions o;
    o.max_loras = 2;
    o.max_lora_rank = 16;
    LlamaRig from(folder + "tiny-llama.F32.gguf", o);
    o.max_lora_rank = 32;
    LlamaRig to(folder + file, o);
    std::uint32_t slot = 1;
    for (const std::string name : {"all-r4", "pattern"}) {
      ASSERT_TRUE(from.model().load_adapter(slot, folder + "adapters/" + name));
      const auto image = from.model().read_adapter(slot);
      ASSERT_TRUE(image) << image.error().what;
      for (const std::uint32_t other : {1u, 2u}) ASSERT_TRUE(to.model().hide_adapter(other));
      ASSERT_TRUE(to.model().load_adapter(1, folder + "adapters/" + name));
      const auto loaded = to.model().load_adapter_image(2, image.value());
      ASSERT_TRUE(loaded) << loaded.error().what;
      for (const std::uint32_t shown : {1u, 2u}) ASSERT_TRUE(to.model().show_adapter(shown));
      EXPECT_EQ(to.model().read_adapter(2).value().bytes, image.value().bytes);
      std::vector<Lane> lanes{{.adapter = 1, .c = &cases[1]}, {.adapter = 2, .c = &cases[1]}};
      run(to, lanes);
      for (std::size_t i = 0; i < lanes[0].logits.size(); ++i) EXPECT_TRUE(same_bits(lanes[0].logits[i], lanes[1].logits[i])) << name;
      ++slot;
    }
    EXPECT_EQ(from.model().read_adapter(3).error().code, ErrorCode::not_found);
    EXPECT_EQ(from.model().read_adapter(9).error().code, ErrorCode::not_found);
    auto spoiled = from.model().read_adapter(1).value();
    spoiled.bytes.pop_back();
    ASSERT_TRUE(to.model().hide_adapter(1));
    EXPECT_EQ(to.model().load_adapter_image(1, spoiled).error().code, ErrorCode::bad_file);
    EXPECT_EQ(to.model().show_adapter(1).error().code, ErrorCode::not_found);
  }
}

TEST(LlamaLora, TheTableAndWhatItRefuses) {
  const std::string adapters = "tests/golden/tiny-llama/adapters/";
  LlamaOptions o;
  o.max_loras = 2;
  o.max_lora_rank = 8;
  LlamaRig rig("tests/golden/tiny-llama/tiny-llama.Q4_1.gguf", o);
  EXPECT_EQ(rig.info().max_loras, 2u);
  EXPECT_EQ(rig.info().max_lora_rank, 8u);
  ModelDeviceFeed& m = rig.model();
  const auto launch = [&](std::uint32_t adapter) {
    const auto r = rig.launch({{.slot = 0, .position = 0, .ids = {1}, .adapter = adapter}});
    if (r) (void)rig.wait(r.value());
    return r ? ErrorCode::none : r.error().code;
  };
  EXPECT_EQ(launch(1), ErrorCode::bad_plan) << "nothing is loaded";
  EXPECT_EQ(m.show_adapter(1).error().code, ErrorCode::not_found);
  EXPECT_EQ(m.load_adapter(1, adapters + "rslora-r16").error().code, ErrorCode::rank_too_large);
  EXPECT_EQ(m.load_adapter(1, adapters + "none").error().code, ErrorCode::not_found);
  EXPECT_EQ(m.load_adapter(0, adapters + "qv-r8").error().code, ErrorCode::not_found);
  EXPECT_EQ(m.load_adapter(4, adapters + "qv-r8").error().code, ErrorCode::not_found);
  ASSERT_TRUE(m.load_adapter(1, adapters + "qv-r8"));
  EXPECT_EQ(launch(1), ErrorCode::bad_plan) << "loaded, and not in the table";
  ASSERT_TRUE(m.show_adapter(1));
  EXPECT_EQ(launch(1), ErrorCode::none);
  EXPECT_EQ(m.load_adapter(1, adapters + "all-r4").error().code, ErrorCode::slot_in_use);
  EXPECT_EQ(launch(1), ErrorCode::none);
  EXPECT_EQ(launch(2), ErrorCode::bad_plan);
  EXPECT_EQ(launch(3), ErrorCode::bad_plan);
  ASSERT_TRUE(m.hide_adapter(1));
  EXPECT_EQ(launch(1), ErrorCode::bad_plan);
  EXPECT_EQ(m.show_adapter(1).error().code, ErrorCode::not_found) << "a slot that was taken out is empty";

  LlamaRig without("tests/golden/tiny-llama/tiny-llama.Q4_1.gguf", {});
  EXPECT_EQ(without.model().load_adapter(1, adapters + "qv-r8").error().code, ErrorCode::unsupported);
  EXPECT_EQ(without.launch({{.slot = 0, .position = 0, .ids = {1}, .adapter = 1}}).error().code, ErrorCode::unsupported);
}

// A slot that is loaded again holds the second adapter alone, and gives the bits that another slot gives.
TEST(LlamaLora, ASlotIsReused) {
  const std::string folder = "tests/golden/tiny-llama/";
  const auto cases = golden::read_cases(folder + "golden.json");
  LlamaOptions o;
  o.max_loras = 2;
  LlamaRig rig(folder + "tiny-llama.Q4_1.gguf", o);
  load(rig, folder, {"all-r4", "qv-r8"});
  std::vector<Lane> other{{.adapter = 2, .c = &cases[1]}};
  run(rig, other);
  ASSERT_TRUE(rig.model().hide_adapter(1));
  ASSERT_TRUE(rig.model().load_adapter(1, folder + "adapters/qv-r8"));
  ASSERT_TRUE(rig.model().show_adapter(1));
  std::vector<Lane> again{{.adapter = 1, .c = &cases[1]}};
  run(rig, again);
  for (std::size_t i = 0; i < other[0].logits.size(); ++i) EXPECT_TRUE(same_bits(again[0].logits[i], other[0].logits[i]));
}

class SmolLm2Adapters : public testing::TestWithParam<bool> {};

TEST_P(SmolLm2Adapters, LogitsAndGreedyIdsMixed) {
  const bool exact = GetParam();
  const char* path = std::getenv("TROUPE_DEFAULT_MODEL");
  if (path == nullptr || !std::filesystem::exists(path))
    GTEST_SKIP() << "TROUPE_DEFAULT_MODEL names no file: the default model was not fetched";
  const std::string folder = "tests/golden/smollm2/";
  const std::vector<std::string> names{"pirate", "caps"};
  LlamaOptions o;
  o.exact = exact;
  o.threads = 2;
  o.context_limit = 512;
  o.max_loras = 2;
  o.max_lora_rank = 8;
  LlamaRig rig(path, o);
  load(rig, folder, names);
  const Tolerance tolerance = exact ? Tolerance{1e-3, 1e-2} : Tolerance{0.10, 0.15};
  std::vector<std::vector<golden::Case>> cases;
  std::vector<std::map<std::string, golden::Tensor>> tensors;
  std::vector<Lane> lanes;
  for (const auto& name : names) {
    cases.push_back(golden::read_cases(folder + "adapters/" + name + "/golden.json"));
    tensors.push_back(golden::read_safetensors(folder + "adapters/" + name + "/golden.safetensors"));
  }
  for (std::size_t k = 0; k < cases[0].size(); ++k) {  // neighbours of a row have other adapters, or none
    for (std::uint32_t a = 0; a < names.size(); ++a) lanes.push_back({.adapter = a + 1, .c = &cases[a][k]});
    lanes.push_back({.adapter = 0, .c = &cases[0][k]});
  }
  run(rig, lanes);
  std::size_t compared = 0;
  for (const Lane& lane : lanes) {
    if (lane.adapter == 0) continue;
    const std::uint32_t a = lane.adapter - 1;
    const auto k = static_cast<std::size_t>(lane.c - cases[a].data());
    const std::string what = names[a] + " case " + std::to_string(k);
    const double deviation = golden::deviation_of_best(lane, tensors[a].at("last_logits." + std::to_string(k)));
    EXPECT_LE(deviation, tolerance.deviation) << what;
    std::printf("%s %s: deviation %.2e\n", exact ? "exact" : "fast", what.c_str(), deviation);
    compared += golden::expect_greedy(lane, tolerance, what);
  }
  std::printf("%zu greedy ids compared\n", compared);
  for (const std::uint32_t i : {0u, 1u, 2u}) {
    std::vector<Lane> alone{{.adapter = lanes[i].adapter, .c = lanes[i].c}};
    run(rig, alone);
    for (std::size_t l = 0; l < alone[0].logits.size(); ++l)
      EXPECT_TRUE(same_bits(alone[0].logits[l], lanes[i].logits[l])) << i << " " << l;
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, SmolLm2Adapters, testing::Bool(), [](const auto& info) { return info.param ? "exact" : "fast"; });

}  // namespace
}  // namespace troupe::device
