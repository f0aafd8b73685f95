// README's example builds, runs and answers.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/tools/program/spawn.h"

namespace troupe::tools {
namespace {

TEST(Embed, AnswersWithTheDefaultModel) {
  const char* model = std::getenv("TROUPE_DEFAULT_MODEL");
  if (model == nullptr || !std::filesystem::exists(model)) {
    GTEST_SKIP() << "the default model is not there (TROUPE_DEFAULT_MODEL): tools/dev setup could not fetch it";
  }
  const Ran ran = run_program("tools/examples/embed", {model, "What is the capital of France?"});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_NE(ran.out.find("Paris"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("\n["), std::string::npos) << ran.out;
}

TEST(Embed, ReadmeShowsTheExampleAsItIs) {
  std::ifstream readme("README.md"), example("tools/examples/embed.cc");
  const std::string text((std::istreambuf_iterator<char>(readme)), {});
  const std::string code((std::istreambuf_iterator<char>(example)), {});
  ASSERT_FALSE(code.empty());
  EXPECT_NE(text.find("```cpp\n" + code + "```"), std::string::npos) << "copy tools/examples/embed.cc into README.md";
}

}  // namespace
}  // namespace troupe::tools
