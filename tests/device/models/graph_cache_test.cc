#include "device/models/graph_cache.h"

#include <gtest/gtest.h>

namespace troupe::device {
namespace {

Ticket t(std::uint64_t step) { return {1, step}; }

TEST(GraphCache, KeepsOneGraphPerSize) {
  GraphCache cache(2, 4);
  EXPECT_EQ(cache.pin(8, t(1)), 0u);
  EXPECT_EQ(cache.make_room(), Graph{0});
  cache.add(8, 80);
  EXPECT_EQ(cache.make_room(), Graph{0});
  cache.add(4, 40);
  EXPECT_EQ(cache.pin(8, t(1)), 80u);
  EXPECT_EQ(cache.pin(4, t(2)), 40u);
  EXPECT_EQ(cache.size(), 2u);
}

TEST(GraphCache, TheOneUsedLongestAgoLeavesUnlessAStepInFlightReplaysIt) {
  GraphCache cache(3, 4);
  for (std::uint32_t size : {1, 2, 4}) cache.add(size, size * 10);
  EXPECT_EQ(cache.pin(1, t(1)), 10u);
  EXPECT_EQ(cache.pin(2, t(2)), 20u);
  EXPECT_EQ(cache.pin(1, t(3)), 10u);
  EXPECT_EQ(cache.make_room(), Graph{40});
  cache.add(8, 80);
  EXPECT_EQ(cache.pin(8, t(4)), 80u);
  EXPECT_EQ(cache.make_room(), std::nullopt) << "all are pinned";
  cache.settled(t(1));
  EXPECT_EQ(cache.make_room(), std::nullopt) << "step 3 replays it too";
  cache.settled(t(3));
  cache.settled(t(2));
  EXPECT_EQ(cache.make_room(), Graph{20});
  EXPECT_EQ(cache.take_all(), (std::vector<Graph>{10, 80}));
  EXPECT_EQ(cache.size(), 0u);
}

TEST(GraphCache, NeverMorePinsThanStepsInFlight) {
  GraphCache cache(1, 2);
  cache.add(1, 10);
  EXPECT_EQ(cache.pin(1, t(1)), 10u);
  EXPECT_EQ(cache.pin(1, t(2)), 10u);
  EXPECT_EQ(cache.pin(1, t(3)), 0u);
  cache.settled(t(9));
  EXPECT_EQ(cache.pin(1, t(3)), 0u);
  cache.settled(t(1));
  EXPECT_EQ(cache.pin(1, t(3)), 10u);
}

}  // namespace
}  // namespace troupe::device
