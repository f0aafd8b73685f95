#include "tests/actors/dispatcher/rig.h"

namespace troupe::actors::test {
namespace {

const Error kGone{ErrorCode::device_lost, "gone"};

TEST(Replicas, RequestsGoToTheOneWithLessToDo) {
  Rig r(2);
  EXPECT_EQ(one<Admit>(r.submit(1, 100)).replica, (ReplicaRef{0, 1}));
  EXPECT_EQ(one<Admit>(r.submit(2, 10)).replica, (ReplicaRef{1, 1}));
  EXPECT_EQ(one<Admit>(r.submit(3, 10)).replica, (ReplicaRef{1, 1}));
  EXPECT_EQ(r.core.replicas()[0].outstanding, 103u);
  EXPECT_EQ(r.core.replicas()[1].live, 2u);
}

TEST(Replicas, ALostOneIsFencedAndItsRequestsGoOnElsewhere) {
  Rig r(2);
  const Admit first = one<Admit>(r.submit(1, 100));
  ASSERT_EQ(first.replica.index, 0u);
  Sent sent = r.on(ReplicaLost{{}, {0, 1}, kGone});
  EXPECT_EQ(one<Reclaim>(sent).requests, (std::vector<Placed>{{first.id, 1}}));
  EXPECT_EQ(one<StopReplica>(sent).replica, (ReplicaRef{0, 1}));
  EXPECT_EQ(r.state(0), ReplicaState::lost);
  EXPECT_TRUE(r.on(ReplicaLost{{}, {0, 1}, kGone}).empty());  // once

  // Whatever the fenced one still says of it counts for nothing.
  EXPECT_TRUE(r.on(Ended{{}, {{first.id, 0}}, {0, 1}}).empty());
  EXPECT_EQ(r.core.live(), 1u);
  EXPECT_EQ(r.core.stats().late, 2u);

  r.now += 7;
  const Admit again = one<Admit>(r.on(Reclaimed{{}, {{first.id, 1, {5, 6, 7}, false}}}));
  EXPECT_EQ(again.replica, (ReplicaRef{1, 1}));
  EXPECT_EQ(again.id, first.id);
  EXPECT_EQ(again.attempt, 1u);
  EXPECT_EQ(again.seed, 99u);
  EXPECT_EQ(again.output, (std::vector<Token>{5, 6, 7}));
  EXPECT_EQ(again.waited, 7);
  EXPECT_FALSE(again.other_arithmetic);
  // An Ended of the attempt that is over, from where the new one runs: dropped too.
  (void)r.on(Ended{{}, {{first.id, 0}}, {1, 1}});
  EXPECT_EQ(r.core.replicas()[1].live, 1u);
  (void)r.end(again);
  EXPECT_EQ(r.core.live(), 0u);
}

TEST(Replicas, ARequestThatHadItsEndIsOver) {
  Rig r(2);
  const Admit a = one<Admit>(r.submit(1));
  (void)r.on(ReplicaLost{{}, a.replica, kGone});
  EXPECT_TRUE(all<Admit>(r.on(Reclaimed{{}, {{a.id, 1, {5}, true}}})).empty());
  EXPECT_EQ(r.core.live(), 0u);
}

// The replica says that it ended, is lost, and delivery never heard of it.
TEST(Replicas, TheReplicasWordIsNotTheEnd) {
  Rig r(2);
  const Admit a = one<Admit>(r.submit(1));
  (void)r.on(Ended{{}, {{a.id, 0}}, a.replica});
  EXPECT_EQ(r.core.live(), 1u);
  EXPECT_EQ(one<Reclaim>(r.on(ReplicaLost{{}, a.replica, kGone})).requests.size(), 1u);
  EXPECT_EQ(one<Admit>(r.on(Reclaimed{{}, {{a.id, 1, {5}, false}}})).attempt, 1u);
}

// The same, and the client came again meanwhile: both are live, and its id is free when both have ended.
TEST(Replicas, ARequestThatLivesAgainHasItsIdBackWhenTheNewerOneEnds) {
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
TEST(Replicas, OfTwoThatLiveAgainTheNewerHasTheirClientsId) {
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

TEST(Replicas, AnotherArithmeticIsSaid) {
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
TEST(Replicas, AnotherArithmeticIsSaidWhereBatchesChangeIt) {
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
TEST(Replicas, TheEndOfAMovedRequestHasTheTextThatWasHeldBack) {
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

TEST(Replicas, RestartsWithPausesAndIsGivenUp) {
  Rig r(2);
  std::vector<TimeNs> pauses;
  for (std::uint32_t life = 1; life <= 4; ++life) {
    (void)r.on(ReplicaLost{{}, {0, life}, kGone});
    (void)r.on(ReplicaDown{{}, {0, life}, {}});
    if (life == 4) break;
    ASSERT_EQ(r.state(0), ReplicaState::waiting);
    const TimeNs from = r.now;
    while (r.state(0) == ReplicaState::waiting) (void)r.until(r.now + 10);
    pauses.push_back(r.now - from);
    EXPECT_EQ(r.core.replicas()[0].replica, (ReplicaRef{0, life + 1}));
    (void)r.on(ReplicaUp{{}, {0, life + 1}, "x"});
    EXPECT_EQ(r.state(0), ReplicaState::up);
  }
  EXPECT_NEAR(static_cast<double>(pauses[0]), 100, 20);
  EXPECT_NEAR(static_cast<double>(pauses[1]), 200, 20);
  EXPECT_NEAR(static_cast<double>(pauses[2]), 400, 20);
  EXPECT_EQ(r.state(0), ReplicaState::failed);
  EXPECT_EQ(r.core.stats().given_up, 1u);
  EXPECT_EQ(one<Admit>(r.submit(1)).replica.index, 1u);
  // Somebody has mended it.
  EXPECT_EQ(one<ReplicaAnswer>(r.on(UndrainReplica{{}, 5, 0})).error.code, ErrorCode::none);
  EXPECT_EQ(r.state(0), ReplicaState::starting);
  (void)r.on(ReplicaUp{{}, {0, 5}, "x"});
  EXPECT_EQ(r.state(0), ReplicaState::up);
}

TEST(Replicas, AStartThatFailsIsTriedAgain) {
  Rig r(1);
  (void)r.on(ReplicaLost{{}, {0, 1}, kGone});
  (void)r.on(ReplicaDown{{}, {0, 1}, {}});
  (void)r.until(r.now + 200);
  EXPECT_EQ(r.state(0), ReplicaState::starting);
  (void)r.on(ReplicaDown{{}, {0, 2}, {ErrorCode::io_failed, "no memory"}});
  EXPECT_EQ(r.state(0), ReplicaState::waiting);
  EXPECT_EQ(r.core.replicas()[0].error.what, "no memory");
  EXPECT_EQ(one<StartReplica>(r.until(r.now + 300)).replica, (ReplicaRef{0, 3}));
}

TEST(Replicas, AStartThatNeverEndsIsLost) {
  Rig r(1);
  (void)r.on(ReplicaLost{{}, {0, 1}, kGone});
  (void)r.on(ReplicaDown{{}, {0, 1}, {}});
  EXPECT_EQ(one<StopReplica>(r.until(r.now + 6000)).replica, (ReplicaRef{0, 2}));
}

TEST(Replicas, WithNoneThereRequestsWaitUntilTheirDeadline) {
  Rig r(1);
  (void)r.on(ReplicaLost{{}, {0, 1}, kGone});
  const SubmitReply soon = one<SubmitReply>(r.submit(1, 10, TimeNs{50})), late = one<SubmitReply>(r.submit(2));
  EXPECT_EQ(soon.error.code, ErrorCode::none);
  EXPECT_EQ(r.core.waiting(), 2u);
  const auto ends = one<EndRequests>(r.until(r.now + 80)).finishes;
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends[0].request, soon.request);
  EXPECT_EQ(ends[0].reason, FinishReason::deadline);
  (void)r.on(ReplicaDown{{}, {0, 1}, {}});
  (void)r.until(r.now + 200);
  EXPECT_EQ(one<Admit>(r.on(ReplicaUp{{}, {0, 2}, "x"})).id, late.request);
}

TEST(Replicas, WithNoneLeftRequestsEndUnavailableAndNewOnesAreRefused) {
  DispatcherConfig c;
  Rig r(1, c);
  const Admit placed = one<Admit>(r.submit(1)), patient = one<Admit>(r.submit(2, 10, TimeNs{100'000'000}));
  for (std::uint32_t life = 1; life <= 4; ++life) {
    Sent sent = r.on(ReplicaLost{{}, {0, life}, kGone});
    if (life == 1) (void)r.on(Reclaimed{{}, {{placed.id, 1, {5}, false}, {patient.id, 1, {}, false}}});
    sent = r.on(ReplicaDown{{}, {0, life}, {}});
    if (life == 4) break;
    (void)r.until(r.now + 500);
    // It is lost before it is up: nothing was placed.
  }
  EXPECT_EQ(r.state(0), ReplicaState::failed);
  EXPECT_EQ(r.core.live(), 1u);  // the one with a deadline waits for somebody to help
  EXPECT_EQ(one<SubmitReply>(r.submit(3)).error.code, ErrorCode::unavailable);
  EXPECT_EQ(r.core.stats().unavailable, 1u);
  (void)r.on(UndrainReplica{{}, 1, 0});
  EXPECT_EQ(one<Admit>(r.on(ReplicaUp{{}, {0, 5}, "x"})).id, patient.id);
}

TEST(Replicas, ARequestThatLosesOneReplicaAfterTheOtherEnds) {
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

TEST(Replicas, ARequestThatGetsOnMayBeMovedForEver) {
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

// wedged-healthy, of one among several: it answers, and nothing settles.
TEST(Replicas, OneWithoutProgressIsLost) {
  Rig r(2);
  (void)r.submit(1);
  Sent sent;
  for (int i = 0; i < 60 && r.state(0) == ReplicaState::up; ++i) {
    sent = r.until(r.now + 50);
    ReplicaReport report;
    report.replica = {0, 1};
    report.running = 1;
    report.settled = 3;
    (void)r.on(report);
  }
  EXPECT_EQ(r.state(0), ReplicaState::lost);
  EXPECT_EQ(r.core.stats().stuck, 1u);
}

TEST(Replicas, OneThatSettlesStepsIsNot) {
  Rig r(2);
  (void)r.submit(1);
  for (std::uint64_t i = 0; i < 100; ++i) {
    (void)r.until(r.now + 50);
    ReplicaReport report;
    report.replica = {0, 1};
    report.running = 1;
    report.settled = i;
    (void)r.on(report);
  }
  EXPECT_EQ(r.state(0), ReplicaState::up);
}

TEST(Replicas, OneThatDoesNotAnswerIsLostAndAnIdleOneIsNotAsked) {
  Rig r(2);
  (void)r.submit(1);
  const Sent sent = r.until(r.now + 400);
  EXPECT_EQ(one<AskReport>(sent).replica, (ReplicaRef{0, 1}));
  EXPECT_EQ(one<StopReplica>(sent).replica, (ReplicaRef{0, 1}));
  EXPECT_EQ(r.core.stats().silent, 1u);
  EXPECT_EQ(r.state(1), ReplicaState::up);
}

TEST(Replicas, DrainPlacesNothingMoreAndAnswersWhenItIsEmpty) {
  Rig r(2);
  const Admit a = one<Admit>(r.submit(1, 10));
  ASSERT_EQ(a.replica.index, 0u);
  EXPECT_TRUE(all<ReplicaAnswer>(r.on(DrainReplica{{}, 7, 0})).empty());
  EXPECT_EQ(r.state(0), ReplicaState::draining);
  for (std::uint64_t client = 2; client < 6; ++client) EXPECT_EQ(one<Admit>(r.submit(client, 100)).replica.index, 1u);
  EXPECT_EQ(one<ReplicaAnswer>(r.end(a)).id, 7u);
  EXPECT_EQ(r.state(0), ReplicaState::drained);
  EXPECT_EQ(one<ReplicaAnswer>(r.on(UndrainReplica{{}, 8, 0})).error.code, ErrorCode::none);
  EXPECT_EQ(one<Admit>(r.submit(6)).replica.index, 0u);
  EXPECT_EQ(one<ReplicaAnswer>(r.on(DrainReplica{{}, 9, 5})).error.code, ErrorCode::not_found);
}

// R11: however often somebody asks.
TEST(Replicas, SoManyMayWaitForADrain) {
  DispatcherConfig c;
  c.max_drains = 2;
  Rig r(2, c);
  const Admit a = one<Admit>(r.submit(1, 10));
  for (std::uint64_t id = 1; id <= 2; ++id) EXPECT_TRUE(all<ReplicaAnswer>(r.on(DrainReplica{{}, id, a.replica.index})).empty());
  const ReplicaAnswer over = one<ReplicaAnswer>(r.on(DrainReplica{{}, 3, a.replica.index}));
  EXPECT_EQ(over.id, 3u);
  EXPECT_EQ(over.error.code, ErrorCode::overloaded);
  EXPECT_EQ(all<ReplicaAnswer>(r.end(a)).size(), 2u);
}

TEST(Replicas, ADrainedOneStaysSoOverARestart) {
  Rig r(2);
  EXPECT_EQ(one<ReplicaAnswer>(r.on(DrainReplica{{}, 7, 0})).error.code, ErrorCode::none);
  (void)r.on(ReplicaLost{{}, {0, 1}, kGone});
  (void)r.on(ReplicaDown{{}, {0, 1}, {}});
  (void)r.until(r.now + 200);
  (void)r.on(ReplicaUp{{}, {0, 2}, "x"});
  EXPECT_EQ(r.state(0), ReplicaState::drained);
}

TEST(Replicas, WithAllDrainedNewRequestsAreRefused) {
  Rig r(1);
  (void)r.on(DrainReplica{{}, 7, 0});
  EXPECT_EQ(one<SubmitReply>(r.submit(1)).error.code, ErrorCode::unavailable);
}

TEST(Replicas, TheRuntimesDrainWaitsForTheLastRequestAndThenTellsEachReplica) {
  Rig r(2);
  const Admit a = one<Admit>(r.submit(1));
  EXPECT_TRUE(all<Drain>(r.on(Drain{})).empty());
  EXPECT_EQ(one<SubmitReply>(r.submit(2)).error.code, ErrorCode::closed);
  EXPECT_EQ(all<Drain>(r.end(a)).size(), 2u);
  EXPECT_TRUE(all<Drained>(r.on(Drained{{}, {0, 1}})).empty());
  EXPECT_EQ(all<Drained>(r.on(Drained{{}, {1, 1}})).size(), 1u);
}

TEST(Replicas, ACancelMeetsARequestWhereverItIs) {
  Rig r(2);
  const Admit a = one<Admit>(r.submit(1));
  // Placed: the scheduler is asked; its replica is lost with the answer.
  EXPECT_EQ(one<CancelRequest>(r.on(Cancel{{}, 1})).replica, a.replica);
  (void)r.on(ReplicaLost{{}, a.replica, kGone});
  EXPECT_TRUE(r.on(CancelReply{{}, a.id, CancelOutcome::cancelled_running, 3, a.replica}).empty());  // late
  EXPECT_TRUE(r.on(Cancel{{}, 1}).empty());                                                          // being reclaimed
  Sent sent = r.on(Reclaimed{{}, {{a.id, 1, {5}, false}}});
  EXPECT_TRUE(all<Admit>(sent).empty());
  const auto replies = all<CancelReply>(sent);
  ASSERT_EQ(replies.size(), 2u);
  EXPECT_EQ(replies[0].outcome, CancelOutcome::cancelled_running);
  EXPECT_EQ(replies[0].tokens, 1u);
  EXPECT_EQ(replies[1].outcome, CancelOutcome::already_finished);
  EXPECT_EQ(one<EndRequests>(sent).finishes.at(0).reason, FinishReason::cancelled);

  // On no replica.
  (void)r.on(ReplicaLost{{}, {1, 1}, kGone});
  const SubmitReply queued = one<SubmitReply>(r.submit(2));
  sent = r.on(Cancel{{}, 2});
  EXPECT_EQ(one<CancelReply>(sent).outcome, CancelOutcome::cancelled_waiting);
  EXPECT_EQ(one<EndRequests>(sent).finishes.at(0).request, queued.request);
  EXPECT_EQ(one<SubmitReply>(r.submit(2)).error.code, ErrorCode::none);  // the id may come again
}

// Who waits for the answer may be who delivers.
TEST(Replicas, ACancelDoesNotWaitForDelivery) {
  Rig r(2);
  const Admit a = one<Admit>(r.submit(1));
  (void)r.on(Cancel{{}, 1});
  (void)r.on(Ended{{}, {{a.id, 0}}, a.replica});
  EXPECT_EQ(one<CancelReply>(r.on(CancelReply{{}, a.id, CancelOutcome::cancelled_running, 3, a.replica})).outcome,
            CancelOutcome::cancelled_running);
  const Admit again = one<Admit>(r.submit(1));  // the client id is free
  EXPECT_NE(again.id, a.id);
  // The end is lost with its replica: the client gets it from here.
  (void)r.on(ReplicaLost{{}, a.replica, kGone});
  Sent sent = r.on(Reclaimed{{}, {{a.id, 1, {5}, false}}});
  EXPECT_EQ(one<EndRequests>(sent).finishes.at(0).reason, FinishReason::cancelled);
  EXPECT_EQ(one<EndRequests>(sent).finishes.at(0).request, a.id);
  EXPECT_TRUE(all<CancelReply>(sent).empty());
  EXPECT_EQ(r.core.live(), 1u);
}

TEST(Replicas, TheStatusSaysWhatThereIs) {
  Rig r(2);
  (void)r.submit(1, 7);
  ReplicaReport report;
  report.replica = {0, 1};
  report.tokens = 42;
  (void)r.on(report);
  const Sent sent = r.on(AskReplicas{{}, 3});
  const ReplicaList list = one<ReplicaList>(sent);
  EXPECT_EQ(list.id, 3u);
  ASSERT_EQ(list.replicas.size(), 2u);
  EXPECT_EQ(list.replicas[0].name, "host:0");
  EXPECT_EQ(list.replicas[0].report.tokens, 42u);
  EXPECT_EQ(list.replicas[0].outstanding, 10u);
  EXPECT_EQ(list.replicas[1].arithmetic_id, "x");
  EXPECT_EQ(all<AskReport>(sent).size(), 2u);
}

}  // namespace
}  // namespace troupe::actors::test
