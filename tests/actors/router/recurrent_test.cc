// Versions of recurrent state: which of them rows read and write, when they go back, and which are kept for prefix hits.
#include "tests/actors/router/rig.h"

namespace troupe::actors {
namespace {

ModelInfo recurrent() {
  ModelInfo m = small_model();
  m.has_ssm_layers = true;
  m.ssm_states = 8;  // two sequences of depth + 1, and two more
  return m;
}

class RecurrentTest : public PrefixTest {
 protected:
  RecurrentTest() : PrefixTest(recurrent()) {}
  const DeviceRow& last(std::size_t row = 0) const { return enqueued.back()->rows[row]; }
  // Everything is settled, row by row, as the scheduler would.
  void settle(SeqId seq, std::uint64_t step, std::uint32_t len, std::uint32_t epoch = 0) {
    complete(step);
    ASSERT_EQ(apply(Commit{seq, epoch, len}), ErrorCode::none);
  }
  void settle_and_keep(SeqId seq, std::uint64_t step, std::uint32_t len) {
    settle(seq, step, len);
    ASSERT_EQ(apply(SsmSnapshotSave{seq}), ErrorCode::none);
  }
  // Tells the sequence that was opened last to begin from its snapshot.
  void begin() {
    ASSERT_NE(opened->snapshot, DeviceRow::kNone);
    ASSERT_EQ(apply(SsmSnapshotRestore{opened->seq, opened->snapshot}), ErrorCode::none);
  }
  const std::vector<Token> nine{1, 2, 3, 4, 5, 6, 7, 8, 9};
};

TEST_F(RecurrentTest, EachRowReadsWhatTheOneBeforeItWrote) {
  const SeqId a = open();
  EXPECT_EQ(core.facts().ssm_used, 3u);
  EXPECT_EQ(core.facts().ssm_sequences, 1u);
  ASSERT_EQ(launch(1, {host_row(a, 0, 3)}), ErrorCode::none);
  EXPECT_EQ(last().state_in, DeviceRow::kNone);
  const std::uint32_t first = last().state_out;
  ASSERT_EQ(launch(2, {fed_row(a, 3, 1, 0)}), ErrorCode::none);
  EXPECT_EQ(last().state_in, first);
  const std::uint32_t second = last().state_out;
  EXPECT_NE(second, first);
  settle(a, 1, 3);
  ASSERT_EQ(launch(3, {fed_row(a, 4, 2, 0)}), ErrorCode::none);
  EXPECT_EQ(last().state_in, second);
  EXPECT_NE(last().state_out, first) << "it is the settled one";
  EXPECT_NE(last().state_out, second);
}

TEST_F(RecurrentTest, ARedoReadsTheSettledVersionAgain) {
  const SeqId a = open();
  ASSERT_EQ(launch(1, {host_row(a, 0, 3)}), ErrorCode::none);
  const std::uint32_t settled = last().state_out;
  settle(a, 1, 3);
  ASSERT_EQ(launch(2, {host_row(a, 3)}), ErrorCode::none);
  ASSERT_EQ(launch(3, {fed_row(a, 4, 2, 0)}), ErrorCode::none);
  complete(2);
  Row again = host_row(a, 3);
  again.epoch = 1;
  ASSERT_EQ(launch(4, {again}, {Rollback{a, 1}}), ErrorCode::none);
  EXPECT_EQ(last().state_in, settled);
  EXPECT_NE(last().state_out, settled);
  complete(3);
  settle(a, 4, 4, 1);
}

TEST_F(RecurrentTest, APositionInsideARowIsNoState) {
  const SeqId a = open();
  ASSERT_EQ(launch(1, {host_row(a, 0, 3)}), ErrorCode::none);
  complete(1);
  EXPECT_EQ(apply(Commit{a, 0, 2}), ErrorCode::bad_plan);
  EXPECT_EQ(apply(Commit{a, 0, 3}), ErrorCode::none);
}

TEST_F(RecurrentTest, VersionsGoBackAtTheFenceAndLimitWhoIsOpened) {
  const SeqId a = open(1);
  (void)open(2);
  EXPECT_EQ(core.facts().ssm_sequences, 0u);
  send(Open{{}, {3, 3}, 4, {}, {}, {}});
  EXPECT_EQ(opened->error.code, ErrorCode::slot_exhausted);
  ASSERT_EQ(launch(1, {host_row(a, 0, 3)}), ErrorCode::none);
  ASSERT_EQ(apply(ReleaseSeq{a}), ErrorCode::none);
  EXPECT_EQ(core.facts().ssm_used, 6u) << "a step in flight names them (R3)";
  complete(1);
  EXPECT_EQ(core.facts().ssm_used, 3u);
  (void)open(3);
  EXPECT_EQ(opened->error.code, ErrorCode::none);
}

TEST_F(RecurrentTest, TheStateAtTheEndOfAPromptIsKeptOnceItIsSettled) {
  const SeqId a = open_with(1, nine);
  EXPECT_EQ(opened->cut_first, 8u) << "the last full block";
  EXPECT_EQ(opened->cut_second, 0u);
  ASSERT_EQ(launch(1, {host_row(a, 0, 8)}), ErrorCode::none);
  const std::uint32_t kept = last().state_out;
  (void)open_with(2, nine);
  EXPECT_EQ(opened->cached_len, 0u) << "it is not settled";
  ASSERT_EQ(apply(ReleaseSeq{opened->seq}), ErrorCode::none);
  settle_and_keep(a, 1, 8);
  EXPECT_EQ(core.stats().snapshots, 1u);
  const SeqId b = open_with(3, nine);
  EXPECT_EQ(opened->cached_len, 8u);
  EXPECT_EQ(opened->cut_first, 0u);
  EXPECT_EQ(opened->snapshot, kept);
  begin();
  // Both read it, and neither writes it; not even when the row is done again.
  ASSERT_EQ(launch(2, {host_row(a, 8), host_row(b, 8)}), ErrorCode::none);
  EXPECT_EQ(last(0).state_in, kept);
  EXPECT_EQ(last(1).state_in, kept);
  EXPECT_NE(last(0).state_out, kept);
  EXPECT_NE(last(1).state_out, last(0).state_out);
  complete(2);
  Row again = host_row(b, 8);
  again.epoch = 1;
  ASSERT_EQ(launch(3, {again}, {Commit{a, 0, 9}, Rollback{b, 1}}), ErrorCode::none);
  EXPECT_EQ(last().state_in, kept);
  settle(b, 3, 9, 1);
  ASSERT_EQ(apply(ReleaseSeq{a}), ErrorCode::none);
  ASSERT_EQ(apply(ReleaseSeq{b}), ErrorCode::none);
  EXPECT_EQ(core.facts().ssm_used, 0u);
  EXPECT_EQ(core.facts().ssm_snapshots, 1u);
  (void)open_with(4, nine, {0, 0});
  EXPECT_EQ(opened->cached_len, 8u);
}

TEST_F(RecurrentTest, WhatIsNoStateToKeepOrToBeginFromIsRefused) {
  const SeqId a = open_with(1, nine);
  EXPECT_EQ(apply(SsmSnapshotSave{a}), ErrorCode::bad_plan) << "nothing is settled";
  ASSERT_EQ(launch(1, {host_row(a, 0, 4)}), ErrorCode::none);
  settle(a, 1, 4);
  EXPECT_EQ(apply(SsmSnapshotSave{a}), ErrorCode::bad_plan) << "nobody asked for it";
  EXPECT_EQ(apply(SsmCheckpoint{a}), ErrorCode::none);
  EXPECT_EQ(core.facts().ssm_used, 3u) << "it was not generated: nothing is kept";
  EXPECT_EQ(apply(SsmSnapshotRestore{a, last().state_out}), ErrorCode::bad_plan);
  ASSERT_EQ(launch(2, {host_row(a, 4, 4)}), ErrorCode::none);
  settle_and_keep(a, 2, 8);
  EXPECT_EQ(apply(SsmSnapshotSave{a}), ErrorCode::none) << "once more changes nothing";
  EXPECT_EQ(core.stats().snapshots, 1u);
  ASSERT_EQ(launch(3, {host_row(a, 8)}), ErrorCode::none);
  settle(a, 3, 9);
  EXPECT_EQ(apply(SsmCheckpoint{a}), ErrorCode::bad_plan) << "inside a block";
  // Behind a snapshot, rows come after the effect that names it, and it comes once.
  const SeqId b = open_with(2, nine);
  ASSERT_EQ(opened->cached_len, 8u);
  EXPECT_EQ(launch(4, {host_row(b, 8)}), ErrorCode::bad_plan);
  EXPECT_EQ(apply(SsmSnapshotRestore{b, opened->snapshot + 1}), ErrorCode::bad_plan);
  begin();
  EXPECT_EQ(apply(SsmSnapshotRestore{b, opened->snapshot}), ErrorCode::bad_plan);
  EXPECT_EQ(launch(5, {host_row(b, 8)}), ErrorCode::none);
}

TEST_F(RecurrentTest, ABranchPointLeavesASnapshotForTheThird) {
  const SeqId a = open_with(1, nine);
  ASSERT_EQ(launch(1, {host_row(a, 0, 8)}), ErrorCode::none);
  settle_and_keep(a, 1, 8);
  ASSERT_EQ(apply(ReleaseSeq{a}), ErrorCode::none);
  const std::vector<Token> other{1, 2, 3, 4, 50, 51, 52, 53, 54};
  const SeqId b = open_with(2, other);
  EXPECT_EQ(opened->cached_len, 0u) << "the block is known, and no state behind it";
  EXPECT_EQ(opened->cut_first, 4u);
  EXPECT_EQ(opened->cut_second, 8u);
  ASSERT_EQ(launch(2, {host_row(b, 0, 4)}), ErrorCode::none);
  settle_and_keep(b, 2, 4);
  (void)open_with(3, {1, 2, 3, 4, 60, 61});
  EXPECT_EQ(opened->cached_len, 4u);
}

TEST_F(RecurrentTest, TheNewestStateBehindAFullBlockOfTheOutputIsKeptWhenItsSequenceLeaves) {
  const SeqId a = open_with(1, {1, 2, 3});
  ASSERT_EQ(launch(1, {host_row(a, 0, 3)}), ErrorCode::none);
  settle(a, 1, 3);
  for (std::uint32_t p = 3; p < 10; ++p) {
    ASSERT_EQ(launch(p, {host_row(a, p)}), ErrorCode::none);
    settle(a, p, p + 1);
    if ((p + 1) % 4 == 0) {
      ASSERT_EQ(apply(SsmCheckpoint{a}), ErrorCode::none);
    }
  }
  EXPECT_EQ(core.stats().snapshots, 0u);
  ASSERT_EQ(apply(ReleaseSeq{a}), ErrorCode::none);
  EXPECT_EQ(core.stats().snapshots, 1u);
  // The rig's completions say that every row read id 0.
  (void)open_with(2, {1, 2, 3, 0, 0, 0, 0, 0, 9});
  EXPECT_EQ(opened->cached_len, 8u);
}

TEST_F(RecurrentTest, SnapshotsAreGivenUpForSequencesTheOldestFirst) {
  for (std::uint64_t client = 1; client <= 3; ++client) {
    std::vector<Token> prompt = nine;
    prompt[0] = static_cast<Token>(client + 20);
    const SeqId a = open_with(client, prompt);
    ASSERT_EQ(launch(client, {host_row(a, 0, 8)}), ErrorCode::none);
    settle_and_keep(a, client, 8);
    ASSERT_EQ(apply(ReleaseSeq{a}), ErrorCode::none);
  }
  EXPECT_EQ(core.facts().ssm_snapshots, 3u);
  EXPECT_EQ(core.facts().ssm_sequences, 2u);
  (void)open(4);
  (void)open(5);
  EXPECT_EQ(core.facts().ssm_snapshots, 2u);
  EXPECT_EQ(core.stats().snapshots_given_up, 1u);
}

TEST_F(RecurrentTest, TeardownGivesEverythingBack) {
  const SeqId a = open_with(1, nine);
  ASSERT_EQ(launch(1, {host_row(a, 0, 8)}), ErrorCode::none);
  settle_and_keep(a, 1, 8);
  send(Teardown{});
  ASSERT_TRUE(torn_down);
  EXPECT_EQ(torn_down->facts.ssm_used, 0u);
  EXPECT_EQ(torn_down->facts.ssm_snapshots, 0u);
}

}  // namespace
}  // namespace troupe::actors
