// What ends requests early, over the cores: cancel, deadline, a lost device, drain; R5, R7 and R8 throughout.
#include <gtest/gtest.h>

#include "tests/sim/workload.h"
#include "tests/sim/world.h"

namespace troupe::sim {
namespace {

void expect_whole(World& world) {
  EXPECT_EQ(world.violation(), "");
  const DeviceFacts f = world.router().facts();
  EXPECT_EQ(f.free_blocks + f.cached_blocks, f.total_blocks);
  EXPECT_EQ(f.free_slots, f.total_slots);
  EXPECT_EQ(f.free_ring_slots, f.ring_slots);
}

bool is_prefix(const std::vector<Token>& a, const std::vector<Token>& b) {
  return a.size() <= b.size() && std::equal(a.begin(), a.end(), b.begin());
}

TEST(Lifecycle, CancelsAtAnyMomentLeavePrefixesAndWholeBooks) {
  std::uint64_t running = 0, finished = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    WorldOptions o;
    o.seed = seed;
    o.depth = 1 + seed % 4;
    World world(o);
    std::mt19937_64 random(seed);
    std::vector<Request> all;
    for (std::uint64_t c = 1; c <= 10; ++c) {
      all.push_back(greedy_request(c, 1 + static_cast<std::uint32_t>(random() % 20), 20));
      world.submit(all.back());
      for (std::uint64_t n = random() % 80; n > 0; --n) world.step();
      world.cancel(1 + random() % c);
    }
    world.run();
    expect_whole(world);
    for (const Request& q : all) {
      const Stream& s = world.stream(q.client);
      ASSERT_TRUE(s.finish);
      const auto expected = expected_tokens(q, sim_model(o.device), o.device);
      if (s.finish->reason == FinishReason::cancelled)
        ASSERT_TRUE(is_prefix(s.tokens, expected));
      else
        ASSERT_EQ(s.tokens, expected);
    }
    for (const CancelReply& r : world.cancels()) {
      running += r.outcome == CancelOutcome::cancelled_running ? 1 : 0;
      finished += r.outcome == CancelOutcome::already_finished || r.outcome == CancelOutcome::not_found ? 1 : 0;
    }
  }
  EXPECT_GT(running, 50u);
  EXPECT_GT(finished, 20u);
}

TEST(Lifecycle, ADeadlineEndsARequestWhereverItIs) {
  WorldOptions o;
  World world(o);
  Request q = greedy_request(1, 8, 60);
  q.deadline = 30'000;  // 30 simulated steps
  world.submit(q);
  world.submit(greedy_request(2, 8, 10));
  world.run();
  expect_whole(world);
  EXPECT_EQ(world.stream(1).finish->reason, FinishReason::deadline);
  EXPECT_LT(world.stream(1).tokens.size(), 60u);
  EXPECT_EQ(world.stream(2).finish->reason, FinishReason::length);
}

TEST(Lifecycle, ALostDeviceEndsEverythingOnceAndRefusesMore) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    WorldOptions o;
    o.seed = seed;
    o.depth = 3;
    o.device.lose_at = 6;
    World world(o);
    for (std::uint64_t c = 1; c <= 6; ++c) world.submit(greedy_request(c, 5, 30));
    world.run();
    EXPECT_EQ(world.violation(), "");
    for (std::uint64_t c = 1; c <= 6; ++c) {
      ASSERT_TRUE(world.stream(c).finish) << "seed " << seed << " client " << c;
      EXPECT_EQ(world.stream(c).finish->error.code, ErrorCode::device_lost);
    }
    world.submit(greedy_request(7, 5, 5));
    world.run();
    ASSERT_TRUE(world.stream(7).finish);
    EXPECT_EQ(world.stream(7).finish->error.code, ErrorCode::device_lost);
  }
}

TEST(Lifecycle, ARowThatStaysNanFailsAloneWithItsReason) {
  WorldOptions o;
  o.depth = 2;
  for (std::uint64_t step = 1; step < 200; ++step) o.device.nan_rows.insert({step, 0});  // whoever is in row 0 fails
  World world(o);
  for (std::uint64_t c = 1; c <= 4; ++c) world.submit(greedy_request(c, 3, 6));
  world.run();
  expect_whole(world);
  std::uint32_t failed = 0;
  for (std::uint64_t c = 1; c <= 4; ++c) {
    ASSERT_TRUE(world.stream(c).finish);
    if (world.stream(c).finish->reason == FinishReason::error) {
      ++failed;
      EXPECT_EQ(world.stream(c).finish->error.code, ErrorCode::no_token);
    }
  }
  EXPECT_GE(failed, 1u);
}

TEST(Lifecycle, ARequestThatFillsThePoolOrTheContextFinishes) {
  WorldOptions o;
  o.device.kv_blocks = 8;  // 32 positions
  World world(o);
  Request fills = greedy_request(1, 12, 20);
  ASSERT_EQ(world.submit(fills).error.code, ErrorCode::none);
  world.run();
  EXPECT_EQ(world.stream(1).finish->reason, FinishReason::length);
  EXPECT_EQ(world.stream(1).tokens, expected_tokens(fills, sim_model(o.device), o.device));
  EXPECT_EQ(world.submit(greedy_request(2, 30, 60)).error.code, ErrorCode::bad_request) << "can never fit";
  expect_whole(world);

  WorldOptions c;
  World context(c);
  Request last = greedy_request(1, 90, 50);  // the context is 96
  context.submit(last);
  context.run();
  EXPECT_EQ(context.stream(1).tokens.size(), 6u);
  EXPECT_EQ(context.stream(1).finish->reason, FinishReason::length);
  expect_whole(context);
}

TEST(Lifecycle, DrainFinishesWhatRunsAndRefusesMore) {
  World world({});
  world.submit(greedy_request(1, 4, 10));
  world.drain();
  world.run();
  EXPECT_TRUE(world.drained());
  EXPECT_EQ(world.stream(1).tokens.size(), 10u);
  EXPECT_EQ(world.submit(greedy_request(2, 4, 10)).error.code, ErrorCode::closed);
  expect_whole(world);
}

}  // namespace
}  // namespace troupe::sim
