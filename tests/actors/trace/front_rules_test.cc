#include "actors/trace/front_rules.h"

#include <gtest/gtest.h>

namespace troupe::actors::trace {
namespace {

constexpr RequestId kId{7, 1};

class Front : public ::testing::Test {
 protected:
  void SetUp() override {
    SubmitReply reply;
    reply.request = kId;
    rules.accepted(reply);
    rules.admitted(admit(0, {0, 1}));
  }
  static Admit admit(std::uint32_t attempt, ReplicaRef replica, std::vector<Token> output = {}) {
    Admit m;
    m.id = kId;
    m.attempt = attempt;
    m.replica = replica;
    m.output = std::move(output);
    return m;
  }
  static TokenBatch tokens(std::uint32_t attempt, std::uint32_t first, std::vector<Token> ids, bool end = false) {
    TokenBatch batch;
    for (const Token id : ids) {
      TokenEvent e;
      e.request = kId;
      e.attempt = attempt;
      e.index = first++;
      e.id = id;
      batch.events.push_back(e);
    }
    Finish finish;
    finish.request = kId;
    finish.attempt = attempt;
    if (end) batch.finishes.push_back(finish);
    return batch;
  }
  void move(std::vector<Token> output) {
    rules.fenced({0, 1});
    rules.reclaim({{}, {{kId, 1}}});
    rules.reclaimed({{}, {{kId, 1, output, false}}});
    rules.admitted(admit(1, {1, 1}, std::move(output)));
  }
  FrontRules rules{true, true};
};

TEST_F(Front, AMoveThatLosesAndRepeatsNothingHolds) {
  rules.delivered(tokens(0, 0, {3, 4}));
  move({3, 4});
  rules.delivered(tokens(0, 2, {5}));  // late, of the lost one
  rules.delivered(tokens(1, 2, {5, 6}, true));
  rules.delivered(tokens(1, 4, {7}));  // behind its end
  EXPECT_EQ(rules.violation(), "");
  EXPECT_EQ(rules.requests(), 1u);
  EXPECT_EQ(rules.tokens(), 4u);
}

TEST_F(Front, ATokenThatIsRepeatedOrLeftOutBreaksR5) {
  rules.delivered(tokens(0, 0, {3, 4}));
  move({3, 4});
  rules.delivered(tokens(1, 0, {3}));
  EXPECT_TRUE(rules.violation().starts_with("R5: ")) << rules.violation();
  FrontRules gap(true, true);
  gap.admitted(admit(0, {0, 1}));
  gap.delivered(tokens(0, 1, {4}));
  EXPECT_TRUE(gap.violation().starts_with("R5: ")) << gap.violation();
}

TEST_F(Front, GoingOnFromOtherTokensThanTheClientHasBreaksR5) {
  rules.delivered(tokens(0, 0, {3, 4}));
  move({3});
  EXPECT_TRUE(rules.violation().starts_with("R5: ")) << rules.violation();
}

TEST_F(Front, NothingGoesToAFencedReplica) {
  rules.fenced({0, 1});
  rules.reclaim({{}, {{kId, 1}}});
  rules.admitted(admit(1, {0, 2}));  // its next life
  EXPECT_EQ(rules.violation(), "");
  rules.admitted(admit(1, {0, 1}));
  EXPECT_NE(rules.violation().find("fenced"), std::string::npos) << rules.violation();
}

TEST_F(Front, WhatHasEndedIsNotPlacedAgain) {
  rules.delivered(tokens(0, 0, {3}, true));
  rules.admitted(admit(0, {1, 1}, {3}));
  EXPECT_NE(rules.violation().find("ended"), std::string::npos) << rules.violation();
}

}  // namespace
}  // namespace troupe::actors::trace
