// R1 over the cores: every schedule at every depth gives each client the stream of depth 1, and the books balance
// after every message. With the negative controls that show that these tests can fail.
#include <gtest/gtest.h>

#include "tests/sim/recordings.h"
#include "tests/sim/workload.h"
#include "tests/sim/world.h"

namespace troupe::sim {
namespace {

struct Ran {
  std::map<std::uint64_t, Stream> streams;
  actors::SchedulerStats stats;
  std::uint64_t behind_window = 0;
  WorldOptions options;
  std::vector<std::uint8_t> recording;  // if options.record
};

// Submits the workload with arrivals in the middle and runs it to the end.
Ran run(const WorldOptions& options, const std::vector<Request>& workload) {
  World world(options);
  std::mt19937_64 random(options.seed);
  for (const Request& q : workload) {
    const SubmitReply reply = world.submit(q);
    EXPECT_EQ(reply.error.code, ErrorCode::none) << reply.error.what;
    for (std::uint64_t n = random() % 60; n > 0 && world.violation().empty(); --n) world.step();
  }
  world.run();
  EXPECT_EQ(world.violation(), "");
  EXPECT_EQ(world.router().facts().free_blocks + world.router().facts().cached_blocks, world.router().facts().total_blocks)
      << "blocks did not come back";
  EXPECT_EQ(world.router().facts().free_slots, world.router().facts().total_slots);
  EXPECT_EQ(world.router().facts().free_ring_slots, world.router().facts().ring_slots);
  return {world.streams(), world.scheduler().stats(), world.router().stats().behind_window, options, world.recording()};
}

// Runs both again, recorded, and says how to see where they part.
std::string why(const Ran& x, const Ran& y, const std::vector<Request>& workload) {
  WorldOptions a = x.options, b = y.options;
  a.record = b.record = true;
  return look_at(run(a, workload).recording, run(b, workload).recording, "equivalence-" + std::to_string(b.seed));
}

std::string differs(const Ran& a, const Ran& b) {
  for (const auto& [client, x] : a.streams) {
    const auto it = b.streams.find(client);
    if (it == b.streams.end()) return "client " + std::to_string(client) + " is missing";
    const Stream& y = it->second;
    if (!x.finish || !y.finish) return "client " + std::to_string(client) + " has no end";
    if (x.tokens != y.tokens) return "client " + std::to_string(client) + ": other tokens";
    if (x.text != y.text) return "client " + std::to_string(client) + ": other text";
    if (x.finish->reason != y.finish->reason) return "client " + std::to_string(client) + ": another end";
  }
  return {};
}

WorldOptions sync_options() {
  WorldOptions o;
  o.depth = 1;
  o.in_order = true;
  return o;
}

TEST(Equivalence, EveryDepthAndScheduleGivesTheStreamsOfDepthOne) {
  std::uint64_t overruns = 0, redone = 0, ahead = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    WorldOptions o = sync_options();
    WorkloadOptions w;
    w.seed = seed;
    const auto workload = make_workload(w, o.device);
    const Ran sync = run(o, workload);
    for (const std::uint32_t depth : {1u, 2u, 3u, 4u}) {
      o.depth = depth;
      o.in_order = false;
      o.seed = seed * 10 + depth;
      const Ran other = run(o, workload);
      ASSERT_EQ(differs(sync, other), "") << "seed " << seed << " depth " << depth << why(sync, other, workload);
      overruns += other.stats.overruns;
      redone += other.stats.redone_rows;
      ahead += other.stats.steps_ahead;
    }
  }
  EXPECT_GT(overruns, 100u);
  EXPECT_GT(redone, 20u);
  EXPECT_GT(ahead, 1000u);
}

TEST(Equivalence, GreedyStreamsEqualTheOracle) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    WorldOptions o;
    o.seed = seed;
    o.device.window = seed % 2 == 0 ? 0 : 2 + seed % 13;
    WorkloadOptions w;
    w.seed = seed;
    w.sampled = false;
    auto workload = make_workload(w, o.device);
    for (Request& q : workload) q.stop.stop.clear();
    const Ran outcome = run(o, workload);
    for (const Request& q : workload)
      ASSERT_EQ(outcome.streams.at(q.client).tokens, expected_tokens(q, sim_model(o.device), o.device))
          << "seed " << seed << " client " << q.client;
  }
}

TEST(Equivalence, HoldsUnderKvPressureWithPreemptions) {
  std::uint64_t preemptions = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    WorldOptions o = sync_options();
    WorkloadOptions w;
    w.seed = seed;
    const auto workload = make_workload(w, o.device);
    const Ran undisturbed = run(o, workload);
    o.device.kv_blocks = 20;
    for (const std::uint32_t depth : {1u, 2u, 4u}) {
      o.depth = depth;
      o.in_order = false;
      o.seed = seed + depth;
      const Ran pressed = run(o, workload);
      ASSERT_EQ(differs(undisturbed, pressed), "") << "seed " << seed << " depth " << depth << why(undisturbed, pressed, workload);
      preemptions += pressed.stats.preemptions;
    }
  }
  EXPECT_GT(preemptions, 20u);
}

// A window from shorter than a block to longer than most streams, with room for all and with hardly any.
TEST(Equivalence, HoldsWithASlidingWindow) {
  std::uint64_t preemptions = 0, behind = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    WorldOptions o = sync_options();
    o.device.window = 2 + seed % 17;
    WorkloadOptions w;
    w.seed = seed;
    const auto workload = make_workload(w, o.device);
    const Ran undisturbed = run(o, workload);
    for (const std::uint32_t depth : {1u, 2u, 4u}) {
      o.device.kv_blocks = depth == 1 ? 64 : 12;
      o.depth = depth;
      o.in_order = false;
      o.seed = seed + depth;
      const Ran pressed = run(o, workload);
      ASSERT_EQ(differs(undisturbed, pressed), "") << "seed " << seed << " depth " << depth << why(undisturbed, pressed, workload);
      preemptions += pressed.stats.preemptions;
      behind += pressed.behind_window;
    }
  }
  EXPECT_GT(preemptions, 20u);
  EXPECT_GT(behind, 1000u);
}

TEST(Equivalence, AFailedStepOrANanRowIsRetriedOnceAndChangesNothing) {
  std::uint64_t failed = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    WorldOptions o = sync_options();
    WorkloadOptions w;
    w.seed = seed;
    const auto workload = make_workload(w, o.device);
    const Ran undisturbed = run(o, workload);
    o.depth = 3;
    o.in_order = false;
    o.device.fail_steps = {5, 35};  // far enough apart that no row meets two in a row
    o.device.nan_rows = {{20, 0}, {50, 1}};
    const Ran faulty = run(o, workload);
    ASSERT_EQ(differs(undisturbed, faulty), "") << "seed " << seed << why(undisturbed, faulty, workload);
    failed += faulty.stats.failed_rows;
  }
  EXPECT_GT(failed, 40u);
}

TEST(Equivalence, KeptOverrunsAreFound) {
  std::uint32_t found = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    WorldOptions o = sync_options();
    WorkloadOptions w;
    w.seed = seed;
    const auto workload = make_workload(w, o.device);
    const Ran sync = run(o, workload);
    o.depth = 2;
    o.fault = actors::SchedulerFault::keep_overrun;
    found += differs(sync, run(o, workload)).empty() ? 0 : 1;
  }
  EXPECT_GE(found, 12u) << "the suite must notice a runtime that keeps over-runs";
}

TEST(Equivalence, IgnoredMaskChangesAreFound) {
  std::uint32_t found = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    WorldOptions o = sync_options();
    o.device.vocab = 8;  // so that a thinking block closes often, and what is barred then is often the argmax
    WorkloadOptions w;
    w.seed = seed;
    w.sampled = w.stops = false;
    const auto workload = make_workload(w, o.device);
    const Ran sync = run(o, workload);
    o.depth = 2;
    o.fault = actors::SchedulerFault::ignore_mask_change;
    found += differs(sync, run(o, workload)).empty() ? 0 : 1;
  }
  EXPECT_GE(found, 1u) << "the suite must notice a mask that was not redone";
}

}  // namespace
}  // namespace troupe::sim
