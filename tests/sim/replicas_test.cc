// Several replicas, some of which are lost: every request goes on elsewhere and nobody can tell (R1, R5), or ends with a reason;
// and the same runtime with a rule broken is found.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/sim/scenario.h"

namespace troupe::sim {
namespace {

using actors::DeliveryFault;
using actors::DispatcherFault;

void run(std::uint64_t seeds, bool lora) {
  ReplicaTotals totals;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const Outcome o = run_scenario(make_replica_scenario(seed, lora));
    ASSERT_EQ(o.violation, "") << "seed " << seed << "; again: sim --replicas 0 --seed " << seed << (lora ? " --lora" : "");
    totals.add(o);
  }
  EXPECT_EQ(totals.missing(), "") << "these were never met";
}

TEST(Replicas, ThousandsOfSeedsLoseReplicasAndNoToken) { run(4000, false); }
TEST(Replicas, AdaptersRollOverThem) { run(3000, true); }

struct Control {
  const char* name;
  DispatcherFault dispatcher = DispatcherFault::none;
  DeliveryFault delivery = DeliveryFault::none;
};

class ReplicaControls : public testing::TestWithParam<Control> {};

TEST_P(ReplicaControls, IsFoundWithinAHundredSeeds) {
  Faults faults;
  faults.dispatcher = GetParam().dispatcher;
  faults.delivery = GetParam().delivery;
  std::string violation;
  std::uint64_t seed = 1;
  for (; seed <= 100 && violation.empty(); ++seed) violation = run_scenario(make_replica_scenario(seed), faults).violation;
  EXPECT_EQ(violation.substr(0, 2), "R5") << violation;
  std::printf("found by seed %llu: %s\n", static_cast<unsigned long long>(seed - 1), violation.c_str());
}

INSTANTIATE_TEST_SUITE_P(All, ReplicaControls,
                         testing::Values(Control{"ResendWithoutTheDeliveredCount", DispatcherFault::resend_all},
                                         Control{"RouteToAFencedReplica", DispatcherFault::route_to_fenced},
                                         Control{"LateEventsCount", DispatcherFault::none, DeliveryFault::any_attempt}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace troupe::sim
