// What becomes of requests whose replica is lost under them.
#include "tests/actors/dispatcher/rig.h"

namespace troupe::actors::test {
namespace {

const Error kGone{ErrorCode::device_lost, "gone"};

TEST(Moves, ARequestThatHadItsEndIsOver) {
  Rig r(2);
  const Admit a = one<Admit>(r.submit(1));
  (void)r.on(ReplicaLost{{}, a.replica, kGone});
  EXPECT_TRUE(all<Admit>(r.on(Reclaimed{{}, {{a.id, 1, {5}, true}}})).empty());
  EXPECT_EQ(r.core.live(), 0u);
}

// The replica says that it ended, is lost, and delivery never heard of it.
TEST(Moves, TheReplicasWordIsNotTheEnd) {
  Rig r(2);
  const Admit a = one<Admit>(r.submit(1));
  (void)r.on(Ended{{}, {{a.id, 0}}, a.replica});
  EXPECT_EQ(r.core.live(), 1u);
  EXPECT_EQ(one<Reclaim>(r.on(ReplicaLost{{}, a.replica, kGone})).requests.size(), 1u);
  EXPECT_EQ(one<Admit>(r.on(Reclaimed{{}, {{a.id, 1, {5}, false}}})).attempt, 1u);
}

// The same, and the client came again meanwhile: both are live, and its id is free when both have ended.
TEST(Moves, ARequestThatLivesAgainHasItsIdBackWhenTheNewerOneEnds) {
  Rig r(2);
  const Admit older = one<Admit>(r.submit(1));
  (void)r.on(Ended{{}, {{older.id, 0}}, older.replica});
  const Admit newer = one<Admit>(r.submit(1));
  ASSERT_EQ(newer.replica, older.replica);
  (void)r.on(ReplicaLost{{}, older.replica, kGone});
  const auto again = all<Admit>(r.on(Reclaimed{{}, {{older.id, 1, {5}, false}, {newer.id, 1, {}, false}}}));
  ASSERT_EQ(again.size(), 2u);
  (void)r.end(again[1]);
  EXPECT_EQ(r.core.live(), 1u);
  EXPECT_EQ(one<SubmitReply>(r.submit(1)).error.code, ErrorCode::bad_request);
  EXPECT_EQ(one<CancelRequest>(r.on(Cancel{{}, 1})).id, older.id);
  (void)r.on(CancelReply{{}, older.id, CancelOutcome::cancelled_running, 0, again[0].replica});
  (void)r.end(again[0]);
  EXPECT_EQ(one<SubmitReply>(r.submit(1)).error.code, ErrorCode::none);
}

// Both had been said to be over.
TEST(Moves, OfTwoThatLiveAgainTheNewerHasTheirClientsId) {
  Rig r(1);
  const Admit older = one<Admit>(r.submit(1));
  (void)r.on(Ended{{}, {{older.id, 0}}, older.replica});
  const Admit newer = one<Admit>(r.submit(1));
  (void)r.on(Ended{{}, {{newer.id, 0}}, newer.replica});
  (void)r.on(ReplicaLost{{}, older.replica, kGone});
  (void)r.on(Reclaimed{{}, {{older.id, 1, {5}, false}, {newer.id, 1, {6}, false}}});
  EXPECT_EQ(one<EndRequests>(r.on(Cancel{{}, 1})).finishes.at(0).request, newer.id);
  EXPECT_EQ(one<EndRequests>(r.on(Cancel{{}, 1})).finishes.at(0).request, older.id);
  EXPECT_EQ(one<CancelReply>(r.on(Cancel{{}, 1})).outcome, CancelOutcome::already_finished);
}

TEST(Moves, AnotherArithmeticIsSaid) {
  Rig r(1);
  (void)r.on(ReplicaLost{{}, {0, 1}, kGone});
  const SubmitReply waits = one<SubmitReply>(r.submit(1));
  EXPECT_EQ(waits.error.code, ErrorCode::none);
  (void)r.on(ReplicaDown{{}, {0, 1}, {}});
  (void)r.until(r.now + 200);
  const Admit first = one<Admit>(r.on(ReplicaUp{{}, {0, 2}, "x"}));
  EXPECT_FALSE(first.other_arithmetic);
  (void)r.on(ReplicaLost{{}, {0, 2}, kGone});
  (void)r.on(Reclaimed{{}, {{waits.request, 1, {5}, false}}});
  (void)r.on(ReplicaDown{{}, {0, 2}, {}});
  (void)r.until(r.now + 400);
  EXPECT_TRUE(one<Admit>(r.on(ReplicaUp{{}, {0, 3}, "y"})).other_arithmetic);
}

// Its bits depend on what else is in a batch: equal ids do not make equal tokens.
TEST(Moves, AnotherArithmeticIsSaidWhereBatchesChangeIt) {
  Rig r(1);
  (void)r.on(ReplicaLost{{}, {0, 1}, kGone});
  (void)r.on(ReplicaDown{{}, {0, 1}, {}});
  (void)r.until(r.now + 200);
  (void)r.on(ReplicaUp{{}, {0, 2}, "cuda/cublaslt"});
  const Admit placed = one<Admit>(r.submit(1)), fresh = one<Admit>(r.submit(2));
  EXPECT_FALSE(placed.other_arithmetic);
  (void)r.on(ReplicaLost{{}, {0, 2}, kGone});
  (void)r.on(Reclaimed{{}, {{placed.id, 1, {5}, false}, {fresh.id, 1, {}, false}}});
  (void)r.on(ReplicaDown{{}, {0, 2}, {}});
  (void)r.until(r.now + 400);
  const auto again = all<Admit>(r.on(ReplicaUp{{}, {0, 3}, "cuda/cublaslt"}));
  ASSERT_EQ(again.size(), 2u);
  EXPECT_TRUE(again[0].other_arithmetic);
  EXPECT_FALSE(again[1].other_arithmetic);  // nobody has seen a token of it
}

// A scheduler would have given it out with the end.
TEST(Moves, TheEndOfAMovedRequestHasTheTextThatWasHeldBack) {
  ModelInfo model = Rig::model(0);
  TokenTable table;
  for (const char* text : {"a", "b", "c", "\xC3"}) {
    table.offsets.push_back(static_cast<std::uint32_t>(table.bytes.size()));
    table.bytes += text;
    table.special.push_back(0);
  }
  table.offsets.push_back(static_cast<std::uint32_t>(table.bytes.size()));
  model.tokens = Shared<TokenTable>::of(table);
  DispatcherCore core(Rig::make(1, {}), model);
  DispatcherOutbox out;
  const auto on = [&](const auto& m) {
    out.clear();
    core.on(m, 1000, out);
    return Sent(out.items());
  };
  (void)on(ReplicaUp{{}, {0, 1}, "x"});
  ReclaimedRequest held[3];
  for (std::uint64_t client = 0; client < 3; ++client) {
    Request q;
    q.client = client;
    q.prompt = {1};
    q.stop.max_tokens = 10;
    q.stop.stop = {"bca"};
    held[client] = {one<Admit>(on(Submit{{}, Shared<Request>::of(q), 1})).id, 1, {}, false};
  }
  held[0].output = {0, 1, 2};     // "a" is out, and "bc" begins the stop string
  held[1].output = {0, 3};        // half a character
  held[2].output = {0, 1, 2, 0};  // a stop string: nothing comes behind it
  (void)on(ReplicaLost{{}, {0, 1}, kGone});
  (void)on(Reclaimed{{}, {held[0], held[1], held[2]}});
  const char* wanted[] = {"bc", "\xEF\xBF\xBD", ""};
  for (std::uint64_t client = 0; client < 3; ++client) {
    const auto ends = one<EndRequests>(on(Cancel{{}, client}));
    ASSERT_EQ(ends.finishes.size(), 1u);
    EXPECT_EQ(ends.text.substr(ends.finishes[0].text_begin, ends.finishes[0].text_size), wanted[client]) << client;
  }
}

TEST(Moves, ARequestThatLosesOneReplicaAfterTheOtherEnds) {
  DispatcherConfig c;
  c.max_moves = 2;
  Rig r(3, c);
  Admit a = one<Admit>(r.submit(1));
  for (std::uint32_t move = 1; move <= 2; ++move) {
    (void)r.on(ReplicaLost{{}, a.replica, kGone});
    a = one<Admit>(r.on(Reclaimed{{}, {{a.id, move, {}, false}}}));
  }
  (void)r.on(ReplicaLost{{}, a.replica, kGone});
  const auto ends = one<EndRequests>(r.on(Reclaimed{{}, {{a.id, 3, {}, false}}})).finishes;
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends[0].error.code, ErrorCode::device_lost);
  EXPECT_EQ(ends[0].attempt, 3u);
}

TEST(Moves, ARequestThatGetsOnMayBeMovedForEver) {
  DispatcherConfig c;
  c.max_moves = 2;
  c.supervision.max_restarts = 1000;
  Rig r(3, c);
  Admit a = one<Admit>(r.submit(1, 100));
  std::vector<Token> had;
  for (std::uint32_t move = 1; move <= 3; ++move) {
    (void)r.on(ReplicaLost{{}, a.replica, kGone});
    had.push_back(move);
    const Sent sent = r.on(Reclaimed{{}, {{a.id, move, had, false}}});
    if (move == 3) break;  // nobody is left; it waits
    a = one<Admit>(sent);
    EXPECT_EQ(a.output, had);
  }
  EXPECT_EQ(r.core.live(), 1u);
}

}  // namespace
}  // namespace troupe::actors::test
