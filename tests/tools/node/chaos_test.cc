// What chaos.py says, for a few seconds and on a tiny model; `tools/dev chaos` does it for longer.
#include <gtest/gtest.h>

#include "tests/tools/program/spawn.h"

namespace troupe::tools {
namespace {

const std::vector<std::string> kChaos{
    "python3", "tests/tools/node/chaos.py", "tools/troupe/troupe", "tests/golden/tiny-llama/tiny-llama.F32.gguf", "--vocabulary", "500"};

Ran chaos(std::vector<std::string> more) {
  std::vector<std::string> args = kChaos;
  args.insert(args.end(), more.begin(), more.end());
  return run_program("/usr/bin/env", args);
}

TEST(Chaos, StreamsSurviveNodesThatAreKilled) {
  const Ran ran = chaos({"--requests", "60", "--tokens", "100", "--every", "0.3", "--kills", "6", "--spacing", "0.04"});
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
}

TEST(Chaos, AnAdapterIsLoadedOverAllNodesUnderLoad) {
  const Ran ran = chaos({"--requests", "60", "--tokens", "100", "--adapter", "tests/golden/tiny-llama/adapters/qv-r8"});
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
  EXPECT_NE(ran.out.find("\"lora\""), std::string::npos) << ran.out;
}

}  // namespace
}  // namespace troupe::tools
