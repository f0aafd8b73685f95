// Public failures around cancelling, client ids that come again, and what comes late: each test bears the name of its
// scenario, as in scenarios_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "tests/sim/life.h"

namespace troupe::sim {
namespace {

// The id comes back the moment its cancel is acknowledged, with steps of the old one in flight.
TEST(Scenario, SameIdAgain) {
  std::uint32_t in_flight = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    Life life(options(seed, 3));
    ASSERT_EQ(life.world.submit(greedy_request(1, 4, 30)).error.code, ErrorCode::none);
    life.steps(60);
    EXPECT_EQ(life.world.submit(greedy_request(1, 4, 30)).error.code, ErrorCode::bad_request) << "a live id is refused";
    life.world.cancel(1);
    while (life.world.cancels().empty() && life.world.step()) {
    }
    in_flight += life.world.scheduler().in_flight();
    life.post(greedy_request(1, 7, 8));
    life.finish();
    EXPECT_EQ(life.world.stream(1).finish->reason, FinishReason::length);
  }
  EXPECT_GT(in_flight, 20u);
}

// A cancelled request is gone for good, also one that waits, is preempted or is parked by pressure.
TEST(Scenario, CancelForever) {
  std::uint32_t preempted = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    WorldOptions o = options(seed, 2);
    o.device.kv_blocks = 12;
    Life life(o);
    for (std::uint64_t c = 1; c <= 6; ++c) life.post(greedy_request(c, 6, 26));
    while (life.world.violation().empty() && life.world.scheduler().stats().preemptions == 0 && life.world.step()) {
    }
    preempted += life.world.scheduler().stats().preemptions > 0 ? 1 : 0;
    for (std::uint64_t c = 1; c <= 6; ++c) life.world.cancel(c);
    life.finish();
    EXPECT_EQ(life.world.scheduler().waiting() + life.world.scheduler().running(), 0u);
    life.world.cancel(6);
    life.world.run();
    EXPECT_EQ(life.world.cancels().back().outcome, CancelOutcome::already_finished);
  }
  EXPECT_GT(preempted, 20u);
}

// A cancel at any moment of a request's life is answered, and says where it found it.
TEST(Scenario, CancelInTransition) {
  std::uint32_t waiting = 0, running = 0, finished = 0, opening = 0;
  for (std::uint32_t moment = 0; moment < 200; ++moment) {
    WorldOptions o = options(moment + 1, 2);
    o.max_batch = 1;  // the second one waits
    Life life(o);
    life.post(greedy_request(1, 5, 6));
    life.post(greedy_request(2, 5, 6));
    life.steps(moment);
    const bool was_opening = life.world.scheduler().running() == 1 && life.world.scheduler().stats().steps == 0;
    const std::uint64_t client = 1 + moment % 2;
    life.world.cancel(client);
    life.finish();
    ASSERT_EQ(life.world.cancels().size(), 1u);
    const CancelReply& r = life.world.cancels()[0];
    const Stream& s = life.world.stream(client);
    waiting += r.outcome == CancelOutcome::cancelled_waiting ? 1 : 0;
    running += r.outcome == CancelOutcome::cancelled_running ? 1 : 0;
    finished += r.outcome == CancelOutcome::already_finished ? 1 : 0;
    EXPECT_EQ(s.finish->reason, r.outcome == CancelOutcome::already_finished ? FinishReason::length : FinishReason::cancelled);
    EXPECT_TRUE(r.outcome == CancelOutcome::already_finished || s.tokens.size() == r.tokens);
    opening += was_opening && client == 1 && s.finish->reason == FinishReason::cancelled ? 1 : 0;
  }
  EXPECT_GT(waiting, 5u);
  EXPECT_GT(running, 10u);
  EXPECT_GT(finished, 5u);
  EXPECT_GT(opening, 0u) << "between its open and the answer";
}

// A completion of something that is gone is counted and dropped, by every actor that can get one.
TEST(Scenario, LateCompletion) {
  const ModelInfo model = sim_model({});
  StepResult r;
  r.ticket = {1, 77};
  actors::RouterCore router({}, model);
  actors::RouterOutbox to_router;
  router.on(RingReady{{}, std::vector<SlotHandles>(3)}, 0, to_router);
  router.on(Completed{{}, 1, Shared<StepResult>::of(r)}, 0, to_router);
  router.on(Completed{{}, 99, Shared<StepResult>::of(r)}, 0, to_router);
  EXPECT_TRUE(to_router.empty());
  EXPECT_EQ(router.stats().late, 2u);
  EXPECT_EQ(router.check(), "");

  actors::SchedulerCore scheduler({}, model);
  actors::SchedulerOutbox to_scheduler;
  scheduler.on(Settled{{}, Shared<StepResult>::of(r), router.facts()}, 5, to_scheduler);
  EXPECT_TRUE(to_scheduler.empty());
  EXPECT_EQ(scheduler.stats().stale_results, 1u);

  actors::DeviceCore device(3, 0);
  actors::DeviceOutbox to_device;
  device.on(Watch{{}, {1, 5}, 0, 1, 0, {}}, 0, to_device);
  device.on(EventDone{{}, {1, 5}, 0, {}}, 0, to_device);
  to_device.clear();
  device.on(EventDone{{}, {1, 5}, 0, {}}, 0, to_device);
  EXPECT_TRUE(to_device.empty());
  EXPECT_EQ(device.ignored(), 1u);
}

// A cancel races the finding of a cached prefix: whatever the order, every block is accounted for.
TEST(Scenario, CancelRacesLoad) {
  std::uint64_t hits = 0;
  for (std::uint32_t moment = 0; moment < 150; ++moment) {
    WorldOptions o = options(moment + 1, 3);
    o.device.kv_blocks = 10;
    Life life(o);
    life.post(greedy_request(1, 17, 2));
    life.world.run();
    Request again = greedy_request(1, 17, 8);
    again.client = 2;
    life.post(again);
    life.steps(moment);
    life.world.cancel(2);
    Request other = greedy_request(1, 12, 8);
    other.client = 3;
    life.post(other);
    life.finish();
    hits += life.world.router().stats().prefix_hits;
  }
  EXPECT_GT(hits, 200u);
}

// The result of a step from before a preemption comes after it: counted and dropped.
TEST(Scenario, LateFrame) {
  std::uint64_t dropped = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    WorldOptions o = options(seed, 4);
    o.device.kv_blocks = 20;
    o.device_lag = 12;
    Life life(o);
    // Of different lengths: one must have a block while others run ahead.
    for (std::uint64_t c = 1; c <= 6; ++c) life.post(greedy_request(c, 2 + c * 5 % 13, 20 + static_cast<std::uint32_t>(c) * 3));
    life.finish();
    const actors::SchedulerStats& s = life.world.scheduler().stats();
    if (s.preemptions > 0) dropped += s.overruns + s.stale_results;  // nobody stops early here: only a preemption leaves any
  }
  EXPECT_GT(dropped, 5u);
}

}  // namespace
}  // namespace troupe::sim
