// Public failures of engines with several devices, each named after its scenario: what one replica meets, the others' requests
// do not notice.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/sim/life.h"

namespace troupe::sim {
namespace {

WorldOptions several(std::uint64_t seed, std::uint32_t n) {
  WorldOptions o = options(seed, 2);
  o.replicas = n;
  return o;
}

// A lost device took the healthy ones down.
TEST(ManyScenarios, OneGpuDies) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    WorldOptions o = several(seed, 3);
    o.devices.assign(3, o.device);
    o.devices[1].lose_at = 2 + seed % 8;
    Life life(o);
    for (std::uint64_t client = 1; client <= 12; ++client) life.post(greedy_request(client, 5, 24));
    life.finish();
    World& w = life.world;
    EXPECT_EQ(w.dispatcher().stats().lost, 1u) << seed;
    EXPECT_GT(w.dispatcher().stats().moved, 0u) << seed;
    for (const Finish& f : w.finishes()) EXPECT_NE(f.reason, FinishReason::error) << seed;
    // The healthy ones stayed as they were, and the lost one is back.
    for (const ReplicaStatus& r : w.dispatcher().replicas()) {
      EXPECT_EQ(r.state, ReplicaState::up) << seed;
      EXPECT_EQ(r.replica.incarnation, r.replica.index == 1 ? 2u : 1u) << seed;
    }
  }
}

// 27/5/0/0 requests on four replicas; affinity pinned a group to one.
TEST(ManyScenarios, Imbalance) {
  for (const bool one_prefix : {false, true}) {
    WorldOptions o = several(3, 4);
    o.max_batch = 16;
    o.placement.affinity_bound = 40;
    Life life(o);
    std::uint64_t most = 0, least = ~std::uint64_t{0}, largest = 0;
    for (std::uint64_t client = 1; client <= 32; ++client) {
      Request q = greedy_request(client, 12, client % 8 == 0 ? 60 : 8);  // a few are long
      if (one_prefix) q.prompt = greedy_request(1, 12, 1).prompt;
      largest = std::max<std::uint64_t>(largest, q.prompt.size() + q.stop.max_tokens);
      life.post(q);
    }
    while (life.world.replies().size() < 32) life.steps(1);
    for (const ReplicaStatus& r : life.world.dispatcher().replicas()) {
      most = std::max(most, r.outstanding);
      least = std::min(least, r.outstanding);
      EXPECT_GT(r.live, 0u) << r.name;
    }
    EXPECT_LE(most - least, largest + o.placement.affinity_bound) << one_prefix;
    life.finish();
  }
}

// One replica's failed request left the others waiting in a collective: nothing here waits for another replica, and a request
// that fails for good fails alone.
TEST(ManyScenarios, CollectiveStall) {
  std::uint64_t failed = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    WorldOptions o = several(seed, 2);
    o.devices.assign(2, o.device);
    for (std::uint64_t step = 3; step < 12; ++step) o.devices[0].nan_rows.insert({step, 0});
    Life life(o);
    for (std::uint64_t client = 1; client <= 8; ++client) life.post(greedy_request(client, 5, 16));
    life.finish();
    World& w = life.world;
    for (const Finish& f : w.finishes()) failed += f.reason == FinishReason::error ? 1 : 0;
    // Those of the other replica are whole (Life compares them), and no replica was blamed for a row.
    EXPECT_EQ(w.dispatcher().stats().lost, 0u) << seed;
    EXPECT_EQ(w.parts()[1]->scheduler.stats().failed_rows, 0u) << seed;
  }
  EXPECT_GT(failed, 0u);
}

}  // namespace
}  // namespace troupe::sim
