// The program under two hundred streaming clients that come and go; what holds is said in storm.py. `tools/dev storm` does
// it for longer.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "tests/tools/program/spawn.h"

namespace troupe::serve {
namespace {

TEST(Storm, LeavesNothingBehind) {
  const char* model = std::getenv("TROUPE_DEFAULT_MODEL");
  if (model == nullptr || !std::filesystem::exists(model)) {
    GTEST_SKIP() << "the default model is not there (TROUPE_DEFAULT_MODEL): tools/dev setup could not fetch it";
  }
  const tools::Ran ran =
      tools::run_program("/usr/bin/env", {"python3", "tests/tools/serve/storm.py", "tools/troupe/troupe", model, "--seconds", "0"});
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
}

}  // namespace
}  // namespace troupe::serve
