// A short run of the simulator: no rule is broken, every path is taken, and a seed is cheap and always the same life.
#include <gtest/gtest.h>

#include "tests/sim/scenario.h"

namespace troupe::sim {
namespace {

TEST(Simulator, ThousandsOfSeedsBreakNoRuleAndTakeEveryPath) {
  constexpr std::uint64_t kSeeds = 6000;
  Coverage coverage;
  std::uint64_t messages = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Outcome outcome = run_scenario(make_scenario(seed));
    ASSERT_EQ(outcome.violation, "") << "seed " << seed << leave_recording(make_scenario(seed));
    coverage.add(outcome.coverage);
    messages += outcome.messages;
  }
  EXPECT_EQ(coverage.missing(), "") << "these paths were never taken";
  EXPECT_LE(messages, kSeeds * 300) << "a seed is short, so that it can be read";
}

TEST(Simulator, TheSameSeedIsTheSameLife) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const Outcome a = run_scenario(make_scenario(seed), {}, 0, true), b = run_scenario(make_scenario(seed), {}, 0, true);
    EXPECT_EQ(a.log, b.log);
    EXPECT_FALSE(a.log.empty());
  }
}

TEST(Simulator, AFailureShrinksToFewerEvents) {
  const Faults faults{actors::SchedulerFault::deliver_twice, {}};
  std::uint32_t shorter = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    const Scenario s = make_scenario(seed);
    if (run_scenario(s, faults).violation.empty()) continue;
    const std::size_t n = shrink(s, faults);
    EXPECT_NE(run_scenario(s, faults, n).violation, "");
    shorter += n < s.events.size() ? 1 : 0;
  }
  EXPECT_GT(shorter, 0u);
}

}  // namespace
}  // namespace troupe::sim
