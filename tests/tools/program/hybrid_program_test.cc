// `troupe verify` on a hybrid model, from outside: requests that arrive, are cancelled, sampled, preempted and run under adapters give
// the same streams at every depth, whether what is preempted is computed again or comes back from a file.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/tools/program/rig.h"

namespace troupe::tools {
namespace {

const std::string kHybrid = "tests/golden/tiny-qwen35";

std::string hybrid_workload() {
  std::string out;
  const auto add = [&](const json::object& line) { out += json::serialize(line) + "\n"; };
  for (const auto& [name, folder] : {std::pair{"a", "all-r4"}, std::pair{"b", "qo-r8"}})
    add({{"lora", {{"load", {{"name", name}, {"dir", kHybrid + "/adapters/" + folder}}}}}, {"at_ms", 0}});
  for (int i = 0; i < 24; ++i) {
    json::array prompt;
    for (int k = 0; k < 5 + i * 29 % 120; ++k)
      prompt.push_back((i % 3 * 50 + k * 37 + k * k * 3) % 500 + 6);  // three stems, which some share
    json::object o{{"id", i}, {"prompt_ids", prompt}, {"max_tokens", 20 + i * 17 % 70}, {"ignore_eos", true}, {"arrive_ms", 5 + i * 3}};
    if (i % 3 != 0) o["adapter"] = i % 3 == 1 ? "a" : "b";
    if (i % 2 == 1) o["temperature"] = 0.9, o["seed"] = i;
    if (i % 4 == 1) o["repetition_penalty"] = 1.2;
    if (i % 8 == 5) o["cancel_after_tokens"] = 4;
    add(o);
  }
  return out;
}

std::string figure(const std::string& text, const std::string& before) {
  const auto at = text.rfind(before);
  const auto begin = text.rfind(' ', at - 1);
  return at == std::string::npos ? "" : text.substr(begin + 1, at - begin - 1);
}

void verify(const std::string& depth, const std::vector<std::string>& more) {
  const std::string path = file("hybrid-" + depth + ".jsonl", hybrid_workload());
  std::vector<std::string> args{"verify", "--model",     kHybrid, "--max-batch", "8",  "--max-loras",
                                "2",      "--kv-blocks", "24",    "--depth",     depth};
  args.insert(args.end(), more.begin(), more.end());
  args.push_back(path);
  const Ran ran = run_program("tools/troupe/troupe", args);
  EXPECT_EQ(last_line(ran.out), "identical") << ran.out << ran.err;
  EXPECT_NE(figure(ran.out, " preemptions"), "0") << ran.out;
  const auto share = ran.out.rfind(" %)");
  ASSERT_NE(share, std::string::npos) << ran.out;
  EXPECT_GE(std::stod(ran.out.substr(ran.out.rfind('(', share) + 1)), 80.0) << ran.out;
  std::fputs(ran.out.c_str(), stdout);
}

TEST(HybridProgram, VerifyIsIdenticalWhereThePreemptedAreComputedAgain) {
  for (const char* depth : {"2", "4"}) verify(depth, {});
}

TEST(HybridProgram, VerifyIsIdenticalWhereThePreemptedComeBackFromFiles) {
  const std::string folder = ::testing::TempDir() + "/spill";
  std::filesystem::create_directory(folder);
  for (const char* depth : {"2", "3"}) verify(depth, {"--spill-dir", folder});
}

}  // namespace
}  // namespace troupe::tools
