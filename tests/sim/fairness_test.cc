// No request waits for ever behind a stream of newer ones, whatever they are like (R10); what is resumed is left alone
// for a while; and a full runtime says so, with when to come again (R11).
#include <gtest/gtest.h>

#include <functional>

#include "tests/sim/workload.h"
#include "tests/sim/world.h"

namespace troupe::sim {
namespace {

// Keeps `live` newer requests in the world until client 1 has its end. Returns how many were accepted by then.
std::uint64_t newer_until_the_end(World& world, std::uint64_t live, const std::function<Request(std::uint64_t)>& make) {
  std::uint64_t client = 1;
  while (!world.stream(1).finish && client < 2000 && world.violation().empty()) {
    while (client - 1 - (world.finishes().size()) < live) world.post(make(++client), nullptr);
    if (!world.step()) break;
  }
  EXPECT_EQ(world.violation(), "");
  EXPECT_TRUE(world.stream(1).finish) << client << " newer ones came, and it is still not done";
  return client - 1;
}

TEST(Fairness, APromptIsNotStarvedByDecodesThatFillTheBudget) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    WorldOptions o;
    o.seed = seed;
    o.max_batch = 5;
    o.step_tokens = 3;  // fewer than the batch: single tokens alone could take it all
    World world(o);
    for (std::uint64_t c = 100; c < 104; ++c) world.post(greedy_request(c, 1, 60), nullptr);
    for (int i = 0; i < 200; ++i) world.step();
    world.post(greedy_request(1, 40, 4), nullptr);
    const std::uint64_t newer = newer_until_the_end(world, 8, [](std::uint64_t c) { return greedy_request(c + 1000, 1, 30); });
    EXPECT_LT(newer, 60u);
    EXPECT_EQ(world.stream(1).finish->reason, FinishReason::length);
  }
}

TEST(Fairness, AnOldRequestThatNeedsTheSamplerIsNotStarved) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    WorldOptions o;
    o.seed = seed;
    o.max_batch = 5;
    o.device.max_logits_rows = 1;
    World world(o);
    Request old = greedy_request(1, 20, 6);
    old.sampling.temperature = 0.7f;
    old.sampling.seed = 4;
    world.post(old, nullptr);
    const std::uint64_t newer = newer_until_the_end(world, 8, [](std::uint64_t c) {
      Request q = greedy_request(c, 1, 12);
      q.sampling.temperature = 0.5f;
      q.sampling.seed = c;
      return q;
    });
    EXPECT_LT(newer, 60u);
  }
}

TEST(Fairness, ALargeRequestIsNotStarvedBySmallOnesUnderPressure) {
  std::uint64_t preemptions = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    WorldOptions o;
    o.seed = seed;
    o.depth = 3;
    o.device.kv_blocks = 18;  // the large one needs 17 of them
    World world(o);
    for (std::uint64_t c = 100; c < 106; ++c) world.post(greedy_request(c, 3, 10), nullptr);
    for (int i = 0; i < 50; ++i) world.step();
    world.post(greedy_request(1, 40, 26), nullptr);
    const std::uint64_t newer = newer_until_the_end(world, 6, [](std::uint64_t c) { return greedy_request(c + 1000, 3, 12); });
    EXPECT_LT(newer, 60u);
    EXPECT_EQ(world.stream(1).finish->reason, FinishReason::length);
    preemptions += world.scheduler().stats().preemptions;
  }
  EXPECT_GT(preemptions, 0u) << "there must be pressure";
}

TEST(Fairness, WaitingRequestsAreServedInOrder) {
  WorldOptions o;
  o.max_batch = 1;
  World world(o);
  for (std::uint64_t c = 1; c <= 12; ++c) world.post(greedy_request(c, 4, 3), nullptr);
  world.run();
  ASSERT_EQ(world.finishes().size(), 12u);
  for (std::size_t i = 1; i < 12; ++i) EXPECT_GT(world.finishes()[i].request.generation, world.finishes()[i - 1].request.generation);
}

TEST(Fairness, AFullRuntimeRefusesWithAHint) {
  WorldOptions o;
  o.max_live = 3;
  World world(o);
  for (std::uint64_t c = 1; c <= 3; ++c) ASSERT_EQ(world.submit(greedy_request(c, 4, 60)).error.code, ErrorCode::none);
  const SubmitReply refused = world.submit(greedy_request(4, 4, 5));
  EXPECT_EQ(refused.error.code, ErrorCode::overloaded);
  EXPECT_GT(refused.retry_after, 0);
  world.run();
  EXPECT_EQ(world.submit(greedy_request(4, 4, 5)).error.code, ErrorCode::none) << "and takes it later";
  world.run();
  EXPECT_EQ(world.violation(), "");
}

}  // namespace
}  // namespace troupe::sim
