// Negative controls: a runtime with one rule broken is found by the simulator, within the stated number of seeds. So a
// simulation that finds nothing says something.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/sim/scenario.h"

namespace troupe::sim {
namespace {

using actors::RouterFault;
using actors::SchedulerFault;
using actors::SpillFault;

struct Control {
  const char* name;
  Faults faults;
  std::uint64_t seeds;  // within which it is found
  bool own_checks = true;
};

// The first seed that finds it; 0 = none of them.
std::uint64_t found(const Control& control, std::string& violation) {
  for (std::uint64_t seed = 1; seed <= control.seeds; ++seed) {
    Scenario s = make_scenario(seed);
    if (control.faults.spill == SpillFault::trust_files) s.world.files.damages = {1, 2, 3, 4};        // few lives have any by themselves
    if (control.faults.router == RouterFault::trust_half_copy) s.world.device.copy_half = {2, 3, 4};  // likewise
    s.world.own_checks = control.own_checks;
    violation = run_scenario(s, control.faults).violation;
    if (!violation.empty()) return seed;
  }
  return 0;
}

class Controls : public testing::TestWithParam<Control> {};

TEST_P(Controls, IsFound) {
  std::string violation;
  const std::uint64_t seed = found(GetParam(), violation);
  EXPECT_NE(seed, 0u) << "the simulator did not notice it in " << GetParam().seeds << " seeds";
  RecordProperty("seed", std::to_string(seed));
  RecordProperty("violation", violation);
  std::printf("found by seed %llu: %s\n", static_cast<unsigned long long>(seed), violation.c_str());
}

INSTANTIATE_TEST_SUITE_P(All, Controls,
                         testing::Values(Control{"KeepOverrun", {SchedulerFault::keep_overrun, {}, {}}, 100},
                                         Control{"IgnoreMaskChange", {SchedulerFault::ignore_mask_change, {}, {}}, 200},
                                         Control{"DropTerminal", {SchedulerFault::drop_terminal, {}, {}}, 100},
                                         Control{"DeliverTwice", {SchedulerFault::deliver_twice, {}, {}}, 100},
                                         Control{"ForgetEpoch", {SchedulerFault::forget_epoch, {}, {}}, 100},
                                         Control{"FreeAtFinish", {{}, RouterFault::free_at_finish, {}}, 100},
                                         Control{"SkipRollback", {{}, RouterFault::skip_rollback, {}}, 100},
                                         Control{"ReuseRingEarly", {{}, RouterFault::reuse_ring_early, {}}, 100},
                                         Control{"OptimisticLength", {{}, RouterFault::optimistic_length, {}}, 100},
                                         Control{"FreeBeforeCopy", {{}, RouterFault::free_before_copy, {}}, 100},
                                         Control{"WaitUnrecorded", {{}, RouterFault::wait_unrecorded, {}}, 100},
                                         Control{"TrustHalfCopy", {{}, RouterFault::trust_half_copy, {}}, 2000},
                                         Control{"JoinEarlyByOwnChecks", {SchedulerFault::join_early, {}, {}}, 100},
                                         Control{"JoinEarly", {SchedulerFault::join_early, RouterFault::trust_join, {}}, 100, false},
                                         Control{"FenceOneStream", {{}, RouterFault::fence_one_stream, {}}, 500},
                                         Control{"FenceOneStreamByItsEffects", {{}, RouterFault::fence_one_stream, {}}, 500, false},
                                         Control{"TrustFiles", {{}, {}, SpillFault::trust_files}, 2000},
                                         Control{"KeepOverrunsCounts", {.append_history = true}, 300},
                                         Control{"StaleCell", {{}, RouterFault::stale_cell, {}}, 100}),
                         [](const auto& info) { return info.param.name; });

TEST(Controls, WithoutASwitchTheSameSeedsFindNothing) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed)
    ASSERT_EQ(run_scenario(make_scenario(seed)).violation, "") << leave_recording(make_scenario(seed));
}

}  // namespace
}  // namespace troupe::sim
