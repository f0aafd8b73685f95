// The scheduler's plans, message by message.
#include "tests/actors/scheduler/rig.h"

namespace troupe::actors {
namespace {

TEST_F(SchedulerTest, ALastChunkFeedsTheFirstDecodeRow) {
  make({.depth = 2, .step_tokens = 8});
  admit(request(1, 12, 4));
  ASSERT_EQ(plans.size(), 1u);
  EXPECT_EQ(plans[0]->rows[0].n_tokens, 8u);
  EXPECT_EQ(plans[0]->rows[0].readback, RowReadback::none);
  accept();
  ASSERT_EQ(plans.size(), 2u) << "the next chunk needs nothing of the first";
  EXPECT_EQ(plans[1]->rows[0].n_tokens, 4u);
  EXPECT_EQ(plans[1]->rows[0].readback, RowReadback::argmax);
  accept();
  EXPECT_EQ(plans.size(), 2u) << "depth 2";
  settle(1, 0);
  ASSERT_EQ(plans.size(), 3u);
  EXPECT_EQ(plans[2]->rows[0].source, FeedSource::feed({1, 2}, 0));
  EXPECT_EQ(plans[2]->rows[0].position, 12u);
}

TEST_F(SchedulerTest, ChunksShareAStepWithDecodeRowsWithinTheBudget) {
  make({.depth = 1, .step_tokens = 8});
  admit(request(1, 2, 20));
  accept();
  admit(request(2, 30, 4));
  settle(1, 7);
  ASSERT_EQ(plans.size(), 2u);
  ASSERT_EQ(plans[1]->rows.size(), 2u);
  EXPECT_EQ(plans[1]->rows[0].n_tokens, 1u);
  EXPECT_EQ(plans[1]->rows[1].n_tokens, 7u) << "what the decode row left of the budget";
}

// R10: the token that reaches max_tokens, or the context, is never followed by a fed row.
TEST_F(SchedulerTest, ARowWhoseNextTokenIsItsLastIsNeverFed) {
  make({.depth = 4});
  admit(request(1, 3, 2));
  accept();
  ASSERT_EQ(plans.size(), 2u);
  accept();
  EXPECT_EQ(plans.size(), 2u) << "two tokens: two rows, whatever the depth";
  settle(1, 5);
  settle(2, 6, 5);
  EXPECT_EQ(tokens[1], (std::vector<Token>{5, 6}));
  EXPECT_EQ(ends[1], FinishReason::length);
  EXPECT_EQ(core->stats().overruns, 0u);
}

TEST_F(SchedulerTest, AnOverrunIsDroppedAndTheSequenceReleased) {
  make({.depth = 2});
  admit(request(1, 3, 10));
  accept();
  accept();
  settle(1, 1);  // end of sequence
  EXPECT_EQ(ends[1], FinishReason::stop);
  settle(2, 42, 1);
  EXPECT_EQ(tokens[1], (std::vector<Token>{1})) << "the over-run's token is nobody's";
  EXPECT_EQ(core->stats().overruns, 1u);
  ASSERT_FALSE(applied.empty());
  EXPECT_TRUE(std::holds_alternative<ReleaseSeq>(applied.back()) || std::holds_alternative<ReleaseSeq>(applied.front()));
}

// R2: an input that is not what the host committed is not committed upon.
TEST_F(SchedulerTest, AFedRowThatReadAnotherTokenIsRedone) {
  make({.depth = 2});
  admit(request(1, 3, 10));
  accept();
  accept();
  settle(1, 5);
  accept();
  settle(2, 6, 99);  // read 99, committed was 5
  EXPECT_EQ(tokens[1], (std::vector<Token>{5}));
  EXPECT_EQ(core->stats().failed_rows, 1u);
  const Row& again = plans.back()->rows[0];
  EXPECT_FALSE(again.source.is_feed());
  EXPECT_EQ(again.epoch, 1u);
  EXPECT_EQ(again.position, 3u);
  EXPECT_EQ(plans.back()->tokens[again.source.begin()], 5u);
}

TEST_F(SchedulerTest, AClosedThinkingBlockRedoesTheRowsThatDidNotKnow) {
  make({.depth = 2});
  Request q = request(1, 3, 10);
  q.think = Think{50, 60, 61};
  admit(q);
  accept();
  accept();
  settle(1, 50);  // the block closes: the row in flight did not bar 60 and 61
  EXPECT_EQ(core->stats().redone_rows, 1u);
  accept();
  const Row& again = plans.back()->rows[0];
  EXPECT_EQ(again.mask, (RowMask{60, 61}));
  EXPECT_EQ(again.epoch, 1u);
  settle(2, 60, 50);  // what the disowned row says no longer counts
  EXPECT_EQ(tokens[1], (std::vector<Token>{50}));
  EXPECT_EQ(core->stats().stale_results, 1u);
}

TEST_F(SchedulerTest, ARowThatNeedsTheHostSitsOutWhileOthersRunAhead) {
  make({.depth = 2});
  Request sampled = request(1, 3, 10);
  sampled.sampling.temperature = 1;
  admit(sampled);
  admit(request(2, 3, 10));
  accept();  // step 1: the first's prompt alone
  ASSERT_EQ(plans.size(), 2u);
  EXPECT_EQ(plans[1]->rows.size(), 1u) << "the second's prompt; the sampled row waits for its token";
  accept();
  settle(1, 0);
  ASSERT_EQ(samples.size(), 1u);
  EXPECT_EQ(plans.size(), 2u) << "the device is busy: the step waits for the sampler's answer";
  SampledBatch answer;
  answer.ticket = samples[0]->ticket;
  SampledRow row;
  row.request = samples[0]->rows[0].request;
  row.id = 33;
  answer.rows = {row};
  send(Sampled{{}, Shared<SampledBatch>::of(answer)});
  ASSERT_EQ(plans.size(), 3u);
  EXPECT_EQ(plans[2]->rows.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<ReadLogits>(plans[2]->effects.back()) || std::holds_alternative<ReadLogits>(plans[2]->effects[1]));
  EXPECT_EQ(tokens[1], (std::vector<Token>{33}));
}

TEST_F(SchedulerTest, AtMostTheStatedRowsReadLogitsBackAndNobodyStarves) {
  make({.depth = 1});
  std::set<std::uint64_t> served;
  for (std::uint64_t c = 1; c <= 5; ++c) {
    Request q = request(c, 1, 8);
    q.sampling.temperature = 1;
    admit(q);
  }
  for (int round = 0; round < 8; ++round) {
    const auto plan = plans.back();
    EXPECT_LE(plan->rows.size(), 2u);
    for (const Row& r : plan->rows) served.insert(r.seq.number);
    accept();
    settle(plan->ticket.step, 0);
    SampledBatch answer;
    answer.ticket = samples.back()->ticket;
    for (const SampleRow& r : samples.back()->rows) {
      SampledRow row;
      row.request = r.request;
      row.id = 20;
      answer.rows.push_back(row);
    }
    send(Sampled{{}, Shared<SampledBatch>::of(answer)});
  }
  EXPECT_EQ(served.size(), 5u);
}

TEST_F(SchedulerTest, WithoutADeviceFeedEveryStepSettlesBeforeTheNext) {
  ModelInfo info = model();
  info.supports_device_token_feed = false;
  make({.depth = 4}, info);
  admit(request(1, 3, 10));
  accept();
  EXPECT_EQ(plans.size(), 1u);
  settle(1, 5);
  EXPECT_EQ(plans.size(), 2u);
  EXPECT_FALSE(plans[1]->rows[0].source.is_feed());
}

TEST_F(SchedulerTest, ARefusedLaunchIsTakenBackWhole) {
  make({.depth = 2});
  admit(request(1, 3, 10));
  accept();
  ASSERT_EQ(plans.size(), 2u);
  DeviceError e;
  e.code = ErrorCode::kv_exhausted;
  e.missing_blocks = 1;
  send(Accepted{{}, plans[1]->ticket, e, facts});
  EXPECT_EQ(plans.size(), 2u) << "R10: a row that only runs ahead is simply not fed";
  EXPECT_EQ(core->stats().preemptions, 0u);
  settle(1, 5);
  ASSERT_EQ(plans.size(), 3u);
  EXPECT_FALSE(plans[2]->rows[0].source.is_feed());
  EXPECT_EQ(plans[2]->rows[0].position, 3u);
  EXPECT_EQ(plans[2]->ticket.step, 3u) << "a ticket is used once";
}

TEST_F(SchedulerTest, WithoutARingSlotNothingIsLaunchedUntilOneComesBack) {
  make({.depth = 2});
  admit(request(1, 3, 10));
  accept();
  DeviceError e;
  e.code = ErrorCode::ring_exhausted;
  send(Accepted{{}, plans[1]->ticket, e, facts});
  admit(request(2, 3, 10));
  EXPECT_EQ(plans.size(), 2u) << "asking again at once would be a busy loop";
  EXPECT_EQ(core->stats().ring_waits, 1u);
  settle(1, 5);
  EXPECT_EQ(plans.size(), 3u);
}

TEST_F(SchedulerTest, AResumedRequestIsNotTheNextVictim) {
  make({.depth = 1});
  for (std::uint64_t c = 1; c <= 3; ++c) admit(request(c, 3, 30));
  accept();
  settle(1, 5);
  ASSERT_EQ(plans.back()->rows.size(), 3u);
  DeviceError e;
  e.code = ErrorCode::kv_exhausted;
  e.missing_blocks = 1;
  send(Accepted{{}, plans.back()->ticket, e, facts});
  ASSERT_EQ(core->stats().preemptions, 1u);
  ASSERT_EQ(std::get<ReleaseSeq>(applied.back()).seq.number, 3u) << "the newest";
  ASSERT_EQ(opened.size(), 1u) << "there is room again: it is resumed";
  const Opened again = opened[0];
  opened.clear();
  send(Applied{{}, {}, {}, facts});
  ASSERT_EQ(plans.back()->rows.size(), 2u);
  send(again);
  send(Accepted{{}, plans.back()->ticket, e, facts});
  ASSERT_EQ(core->stats().preemptions, 2u);
  ASSERT_EQ(plans.back()->effects.size(), 1u) << "the resumed one goes on";
  EXPECT_EQ(std::get<ReleaseSeq>(plans.back()->effects[0]).seq.number, 2u) << "the newest that was not resumed just now";
}

TEST_F(SchedulerTest, MinTokensBarTheEndUntilThen) {
  make({.depth = 1});
  Request q = request(1, 3, 10);
  q.stop.min_tokens = 2;
  q.stop.stop_token_ids = {8};
  admit(q);
  EXPECT_EQ(plans[0]->rows[0].mask, (RowMask{1, 8}));
  accept();
  settle(1, 5);
  accept();
  settle(2, 6);
  EXPECT_TRUE(plans[2]->rows[0].mask.empty());
}

TEST_F(SchedulerTest, MoreThanTwoBarredIdsAreTheSamplers) {
  make({.depth = 2});
  Request q = request(1, 3, 10);
  q.stop.min_tokens = 1;
  q.stop.stop_token_ids = {8, 9};
  admit(q);
  EXPECT_EQ(plans[0]->rows[0].readback, RowReadback::logits);
  accept();
  EXPECT_EQ(plans.size(), 1u);
  settle(1, 0);
  ASSERT_EQ(samples.size(), 1u);
  EXPECT_EQ(samples[0]->rows[0].bar_size, 3u);
}

TEST_F(SchedulerTest, AnAcknowledgedDeadlineTimerIsArmedForTheEarliest) {
  make({.depth = 1});
  Request late = request(1, 3, 10), soon = request(2, 3, 10);
  late.deadline = 1000;
  soon.deadline = 10;
  admit(late);
  EXPECT_EQ(timer, 1001);
  admit(soon);
  EXPECT_EQ(timer, 11);
  send(Tick{}, 11);
  EXPECT_EQ(ends[2], FinishReason::deadline);
  EXPECT_EQ(timer, 1001);
}

// A request of a model with a window is admitted with the blocks that it can hold at a time, not with all that it passes.
TEST_F(SchedulerTest, AdmissionCountsTheBlocksOfTheWindow) {
  for (const std::uint32_t window : {0u, 6u}) {
    ModelInfo m = model();
    m.window = window;
    make({.depth = 1, .step_tokens = 8}, m);
    plans.clear();
    opened.clear();
    facts.free_blocks = 10;
    admit(request(1, 40, 4));  // 11 blocks; or two chunks of 8 and a window of 5 before them at most: 5
    admit(request(2, 40, 4));
    EXPECT_EQ(core->running(), window == 0 ? 1u : 2u);
  }
}

// A chunk is no larger than the pool, and the next one has what went back.
TEST_F(SchedulerTest, AChunkFitsThePoolOfAWindowedModel) {
  ModelInfo m = model();
  m.window = 6;
  m.kv_blocks = 4;
  make({.depth = 2, .step_tokens = 32}, m);
  admit(request(1, 40, 4));
  ASSERT_EQ(plans.size(), 1u);
  EXPECT_EQ(plans[0]->rows[0].n_tokens, 16u);
  accept();
  EXPECT_EQ(plans.size(), 1u) << "nothing can go back before it has settled";
  settle(1, 0);
  ASSERT_EQ(plans.size(), 2u);
  EXPECT_EQ(plans[1]->rows[0].n_tokens, 8u) << "position 16 reads 11 .. 16: two blocks went back";
}

TEST_F(SchedulerTest, AWindowThatThePoolCannotHoldEndsTheRequestWithTheReason) {
  ModelInfo m = model();
  m.window = 10;
  m.kv_blocks = 2;
  make({.depth = 2, .step_tokens = 32}, m);
  admit(request(1, 40, 4));
  accept();
  settle(1, 0);
  ASSERT_EQ(plans.size(), 2u);
  EXPECT_EQ(plans[1]->rows[0].n_tokens, 1u) << "asked for, so that the router says what is missing";
  DeviceError no;
  no.code = ErrorCode::kv_exhausted;
  no.missing_blocks = 1;
  send(Accepted{{}, plans[1]->ticket, no, facts});
  EXPECT_EQ(ends[1], FinishReason::error);
}

TEST_F(SchedulerTest, HaltEndsEverythingWithTheReason) {
  make({.depth = 2});
  admit(request(1, 3, 10));
  accept();
  send(Halt{{}, Error{ErrorCode::closed, "the runtime stops"}});
  EXPECT_EQ(ends[1], FinishReason::error);
  admit(request(2, 3, 10));
  EXPECT_EQ(ends[2], FinishReason::error);
}

}  // namespace
}  // namespace troupe::actors
