#include "actors/trace/lane.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "actors/trace/writer.h"

namespace troupe::actors::trace {
namespace {

RecordHead head(std::uint64_t seq) {
  RecordHead h;
  h.seq = seq;
  return h;
}

TEST(Lane, GivesBackWhatWentInInOrderRoundAndRound) {
  Lane lane(4096);
  std::uint64_t in = 0, out = 0;
  for (int round = 0; round < 200; ++round) {
    for (int i = 0; i < round % 7; ++i) {
      if (in % 3 == 0)
        lane.push(head(in));
      else
        lane.push(head(in), Cancel{{}, in}, kLaneOps<Cancel>);
      ++in;
    }
    lane.drain([&](const RecordHead& h, const void* message, const Lane::Ops&) {
      EXPECT_EQ(h.seq, out);
      ASSERT_EQ(message == nullptr, out % 3 == 0);
      EXPECT_TRUE(message == nullptr || static_cast<const Cancel*>(message)->client == out);
      ++out;
    });
  }
  EXPECT_EQ(in, out);
  EXPECT_EQ(lane.take_lost(), 0u);
}

TEST(Lane, AFullLaneDropsAndCounts) {
  Lane lane(4096);
  for (std::uint64_t i = 0; i < 100; ++i) lane.push(head(i), Cancel{{}, i}, kLaneOps<Cancel>);
  std::uint64_t n = 0;
  lane.drain([&](const RecordHead& h, const void*, const Lane::Ops&) { EXPECT_EQ(h.seq, n++); });
  EXPECT_GT(n, 8u);
  EXPECT_EQ(lane.take_lost(), 100 - n);
  EXPECT_EQ(lane.take_lost(), 0u);
  lane.push(head(7));
  EXPECT_TRUE(lane.drain([](const RecordHead& h, const void*, const Lane::Ops&) { EXPECT_EQ(h.seq, 7u); }));
}

TEST(Lane, WhatIsLeftInItIsGivenUpWithIt) {
  Pool<StepPlan> pool;
  {
    Lane lane(4096);
    lane.push(head(1), Launch{{}, pool.draft().freeze(), true}, kLaneOps<Launch>);
    (void)pool.draft();
    EXPECT_EQ(pool.made(), 2u) << "the lane holds the first";
  }
  const Draft<StepPlan> a = pool.draft(), b = pool.draft();
  EXPECT_EQ(pool.made(), 2u);
}

TEST(Lane, OneThreadPutsInAndAnotherTakesOut) {
  constexpr std::uint64_t kRecords = 200'000;
  Lane lane(16 * 1024);
  std::thread producer([&] {
    Pool<StepPlan> pool;
    for (std::uint64_t i = 0; i < kRecords; ++i) {
      Draft<StepPlan> plan = pool.draft();
      plan->ticket.step = i;
      lane.push(head(i), Launch{{}, std::move(plan).freeze(), true}, kLaneOps<Launch>);
    }
  });
  std::uint64_t seen = 0, lost = 0, last = 0;
  const auto take = [&] {
    lane.drain([&](const RecordHead& h, const void* message, const Lane::Ops&) {
      EXPECT_EQ(static_cast<const Launch*>(message)->plan->ticket.step, h.seq);
      EXPECT_TRUE(seen == 0 || h.seq > last);
      last = h.seq;
      ++seen;
    });
    lost += lane.take_lost();
  };
  while (seen + lost < kRecords) take();
  producer.join();
  take();
  EXPECT_EQ(seen + lost, kRecords);
}

}  // namespace
}  // namespace troupe::actors::trace
