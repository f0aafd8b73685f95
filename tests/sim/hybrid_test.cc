// Lives of a model with recurrent layers: every choice depends on the state that a row read, so a wrong version of it is a
// wrong token, and the witness follows which version is whose (R2, R3).
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/sim/scenario.h"

namespace troupe::sim {
namespace {

using actors::RouterFault;
using actors::SchedulerFault;

std::string where(std::uint64_t seed) { return "seed " + std::to_string(seed) + leave_recording(make_hybrid_scenario(seed)); }

TEST(Hybrid, ThousandsOfSeedsBreakNoRule) {
  Coverage coverage;
  for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
    const Outcome outcome = run_scenario(make_hybrid_scenario(seed));
    ASSERT_EQ(outcome.violation, "") << where(seed);
    coverage.add(outcome.coverage);
  }
  for (const Path path : {Path::steps_ahead,
                          Path::fed_rows,
                          Path::overruns,
                          Path::redone_rows,
                          Path::stale_results,
                          Path::preemptions,
                          Path::resumes,
                          Path::retries,
                          Path::prefix_hits,
                          Path::prefix_reclaimed,
                          Path::released_at_fence,
                          Path::step_failed_late,
                          Path::half_enqueued,
                          Path::spills,
                          Path::restores,
                          Path::restore_failures,
                          Path::spills_dropped,
                          Path::copies_ordered,
                          Path::copy_errors,
                          Path::damaged_files,
                          Path::cancels_while_saving,
                          Path::cancels_while_restoring})
    EXPECT_GT(coverage[path], 0u) << static_cast<int>(path);
}

// A snapshot is of an adapter's generation: another one's would be another stream.
TEST(Hybrid, WithAdaptersThatComeAndGo) {
  Coverage coverage;
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    const Outcome outcome = run_scenario(make_hybrid_scenario(seed, true));
    ASSERT_EQ(outcome.violation, "") << "seed " << seed << leave_recording(make_hybrid_scenario(seed, true));
    coverage.add(outcome.coverage);
  }
  EXPECT_GT(coverage[Path::prefix_hits], 0u);
}

// Only the oracle and the witness judge: the router's own check knows what it did.
std::uint64_t found(RouterFault fault, std::uint64_t seeds, std::string& violation) {
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    Scenario s = make_hybrid_scenario(seed);
    s.world.own_checks = false;
    violation = run_scenario(s, {.router = fault}).violation;
    if (!violation.empty()) return seed;
  }
  return 0;
}

TEST(Hybrid, RestoringTheNewestInsteadOfTheSettledVersionIsFound) {
  std::string violation;
  EXPECT_NE(found(RouterFault::newest_state, 200, violation), 0u);
  std::printf("%s\n", violation.c_str());
}

TEST(Hybrid, GivingVersionsBackAtTheFinishIsFound) {
  std::string violation;
  EXPECT_NE(found(RouterFault::states_at_finish, 1000, violation), 0u);
  std::printf("%s\n", violation.c_str());
}

TEST(Hybrid, SavingTheNewestInsteadOfTheSettledVersionIsFound) {
  std::string violation;
  EXPECT_NE(found(RouterFault::save_newest_state, 500, violation), 0u);
  std::printf("%s\n", violation.c_str());
}

TEST(Hybrid, GivingVersionsBackBeforeTheyAreSavedIsFound) {
  std::string violation;
  EXPECT_NE(found(RouterFault::free_before_copy, 200, violation), 0u);
  std::printf("%s\n", violation.c_str());
}

TEST(Hybrid, GivingUpASnapshotThatIsReadIsFound) {
  std::string violation;
  EXPECT_NE(found(RouterFault::evict_in_use, 3000, violation), 0u);
  std::printf("%s\n", violation.c_str());
}

TEST(Hybrid, ASnapshotOfAnotherPositionIsFound) {
  std::string violation;
  EXPECT_NE(found(RouterFault::shift_snapshot, 500, violation), 0u);
  std::printf("%s\n", violation.c_str());
}

TEST(Hybrid, ASnapshotOfAnUnsettledStateIsFound) {
  std::string violation;
  EXPECT_NE(found(RouterFault::snapshot_unsettled, 500, violation), 0u);
  std::printf("%s\n", violation.c_str());
}

TEST(Hybrid, KeptOverRunsAreFound) {
  std::string violation;
  for (std::uint64_t seed = 1; seed <= 200 && violation.empty(); ++seed)
    violation = run_scenario(make_hybrid_scenario(seed), {.scheduler = SchedulerFault::keep_overrun}).violation;
  EXPECT_NE(violation, "");
}

}  // namespace
}  // namespace troupe::sim
