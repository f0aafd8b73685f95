#include "actors/delivery/core.h"

#include <gtest/gtest.h>

namespace troupe::actors {
namespace {

const RequestId kA{7, 1}, kB{8, 2};

struct Bench {
  explicit Bench(bool reclaims = true, DeliveryFault fault = DeliveryFault::none) : core({reclaims, fault}) {
    core.open(kA, 16);
    core.open(kB, 16);
  }
  // Indices of the batch that count, events and finishes.
  std::pair<std::size_t, std::size_t> deliver(const std::vector<TokenEvent>& events, const std::vector<Finish>& finishes = {}) {
    TokenBatch batch;
    batch.events = events;
    batch.finishes = finishes;
    core.on(Deliver{{}, Shared<TokenBatch>::of(std::move(batch))}, 0, out);
    return {core.events().size(), core.finishes().size()};
  }
  std::vector<ReclaimedRequest> reclaim(const std::vector<Placed>& requests) {
    out.clear();
    core.on(Reclaim{{}, requests}, 0, out);
    EXPECT_EQ(out.items().size(), 1u);
    return std::get<Reclaimed>(out.items().at(0)).requests;
  }
  DeliveryCore core;
  DeliveryOutbox out;
};

TokenEvent token(const RequestId& id, std::uint32_t attempt, std::uint32_t index, Token value = 5) {
  TokenEvent e;
  e.request = id;
  e.attempt = attempt;
  e.index = index;
  e.id = value;
  return e;
}

Finish finish(const RequestId& id, std::uint32_t attempt) {
  Finish f;
  f.request = id;
  f.attempt = attempt;
  return f;
}

using Counts = std::pair<std::size_t, std::size_t>;

TEST(Delivery, EachTokenOnceAndInOrder) {
  Bench b;
  EXPECT_EQ(b.deliver({token(kA, 0, 0), token(kB, 0, 0), token(kA, 0, 1)}), Counts(3, 0));
  EXPECT_EQ(b.deliver({token(kA, 0, 1)}), Counts(0, 0));  // again
  EXPECT_EQ(b.deliver({token(kA, 0, 3)}), Counts(0, 0));  // one is missing
  EXPECT_EQ(b.core.stats().repeated, 2u);
  EXPECT_EQ(b.deliver({token(kA, 0, 2)}, {finish(kA, 0)}), Counts(1, 1));
  EXPECT_EQ(b.deliver({token(kA, 0, 3)}, {finish(kA, 0)}), Counts(0, 0));  // it has ended
  EXPECT_EQ(b.core.stats().late, 2u);
  EXPECT_EQ(b.core.live(), 1u);
}

TEST(Delivery, EndsAreToldBeforeAnybodyIsCalled) {
  Bench b;
  (void)b.deliver({token(kA, 0, 0)}, {finish(kA, 0), finish(kA, 0)});
  ASSERT_EQ(b.out.items().size(), 1u);
  EXPECT_EQ(std::get<Delivered>(b.out.items()[0]).requests, (std::vector<Placed>{{kA, 0}}));
}

TEST(Delivery, OneReplicaIsToldNothing) {
  Bench b(false);
  (void)b.deliver({token(kA, 0, 0)}, {finish(kA, 0)});
  EXPECT_TRUE(b.out.empty());
}

TEST(Delivery, AReclaimAnswersWhatTheClientHasAndFencesTheRest) {
  Bench b;
  (void)b.deliver({token(kA, 0, 0, 11), token(kA, 0, 1, 12)}, {finish(kB, 0)});
  const auto r = b.reclaim({{kA, 1}, {kB, 1}});
  ASSERT_EQ(r.size(), 2u);
  EXPECT_EQ(r[0].output, (std::vector<Token>{11, 12}));
  EXPECT_FALSE(r[0].ended);
  EXPECT_EQ(r[0].attempt, 1u);
  EXPECT_TRUE(r[1].ended);
  // What the first attempt still says is dropped, though its index would fit.
  EXPECT_EQ(b.deliver({token(kA, 0, 2)}, {finish(kA, 0)}), Counts(0, 0));
  EXPECT_EQ(b.core.stats().late, 2u);
  EXPECT_EQ(b.core.stats().repeated, 0u);
  EXPECT_EQ(b.deliver({token(kA, 1, 2, 13)}), Counts(1, 0));
  EXPECT_EQ(b.reclaim({{kA, 2}})[0].output, (std::vector<Token>{11, 12, 13}));
  EXPECT_EQ(b.deliver({token(kA, 2, 3)}, {finish(kA, 2)}), Counts(1, 1));
}

TEST(Delivery, TheDispatcherCanEndWhatIsOnNoReplica) {
  Bench b;
  (void)b.reclaim({{kA, 1}});
  b.core.on(EndRequests{{}, {finish(kA, 0), finish(kA, 1)}}, 0, b.out);
  EXPECT_EQ(b.core.finishes(), (std::vector<std::uint32_t>{1}));
  EXPECT_EQ(b.core.live(), 1u);
}

TEST(Delivery, TheControlTakesLateEvents) {
  Bench b(true, DeliveryFault::any_attempt);
  (void)b.reclaim({{kA, 1}});
  EXPECT_EQ(b.deliver({token(kA, 0, 0)}), Counts(1, 0));
}

}  // namespace
}  // namespace troupe::actors
