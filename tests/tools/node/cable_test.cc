// What cable.py says, on a tiny model.
#include <gtest/gtest.h>

#include "tests/tools/program/spawn.h"

namespace troupe::tools {
namespace {

TEST(Cable, ThatIsPulledIsNoticedAndNothingIsLost) {
  const Ran ran = run_program("/usr/bin/env", {"python3", "tests/tools/node/cable.py", "tools/troupe/troupe",
                                               "tests/golden/tiny-llama/tiny-llama.F32.gguf", "--vocabulary", "500", "--tokens", "150"});
  if (ran.status == 77) GTEST_SKIP() << ran.out;
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
}

}  // namespace
}  // namespace troupe::tools
