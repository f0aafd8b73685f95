// The recurrent state of a sequence that is saved and brought back: the settled version goes behind the blocks, is the sequence's until
// it was copied, and comes back as the first version of the one that goes on (R2, R3, R8).
#include "tests/actors/router/spill_rig.h"

namespace troupe::actors {
namespace {

constexpr std::uint32_t kNone = DeviceRow::kNone;

ModelInfo hybrid_model() {
  ModelInfo m = spill_model();
  m.has_ssm_layers = true;
  m.ssm_states = 6;  // of two sequences
  return m;
}

// Three parts: a copy of two, and one of the last.
class RouterSpillState : public RouterSpill {
 protected:
  RouterSpillState() : RouterSpill(0, hybrid_model(), 3) {}
  const DeviceRow& row() const { return enqueued.back()->rows.front(); }
  void copies_to_the_end() {
    while (saved.empty()) copied(), written();
  }
};

TEST_F(RouterSpillState, TheSettledVersionGoesBehindTheBlocks) {
  const SeqId a = settled(6);
  const std::uint32_t version = row().state_out;
  ASSERT_EQ(launch(next_step++, a, 6, 1), ErrorCode::none);  // in flight, and disowned by the save
  EXPECT_EQ(row().state_in, version);
  ASSERT_EQ(apply(SaveSequenceState{a}), ErrorCode::none);
  EXPECT_EQ(copies.back().blocks.size(), 2u);
  EXPECT_EQ(copies.back().state, kNone);
  copied();
  EXPECT_EQ(writes.back().n_blocks, 2u);
  EXPECT_EQ(writes.back().n_parts, 3u);
  EXPECT_FALSE(writes.back().last());
  written();
  EXPECT_TRUE(copies.back().blocks.empty());
  EXPECT_EQ(copies.back().state, version);
  EXPECT_EQ(copies.back().part, 0u);
  EXPECT_EQ(copies.back().n_parts, 2u);
  copied();
  written();
  EXPECT_EQ(copies.back().state, version);
  EXPECT_EQ(copies.back().part, 2u);
  EXPECT_EQ(copies.back().n_parts, 1u);
  complete(2);
  EXPECT_EQ(core.facts().ssm_used, 3u) << "the version is still to be copied";
  copied();
  EXPECT_EQ(core.facts().ssm_used, 0u);
  EXPECT_TRUE(writes.back().last());
  written();
  ASSERT_EQ(saved.size(), 1u);
  EXPECT_EQ(saved[0].positions, 6u);
}

TEST_F(RouterSpillState, ItComesBackAsTheFirstVersionAndNothingIsCopiedForARedo) {
  const SeqId a = settled(6);
  ASSERT_EQ(apply(SaveSequenceState{a}), ErrorCode::none);
  copies_to_the_end();
  restore(a, 6, 7);
  was_read(), copied();
  EXPECT_EQ(copies.back().blocks.size(), 2u);
  was_read();
  const std::uint32_t version = copies.back().state;
  EXPECT_FALSE(copies.back().out);
  EXPECT_EQ(copies.back().n_parts, 2u);
  copied(), was_read();
  EXPECT_EQ(copies.back().state, version);
  EXPECT_EQ(copies.back().part, 2u);
  copied();
  ASSERT_TRUE(opened.back().restored);
  EXPECT_EQ(opened.back().cached_len, 6u);
  const SeqId b = opened.back().seq;
  ASSERT_EQ(launch(next_step++, b, 6, 1), ErrorCode::none);
  EXPECT_EQ(row().state_in, version);
  const std::uint32_t next = row().state_out;
  EXPECT_NE(next, version);
  ASSERT_EQ(launch(next_step++, b, 7, 1), ErrorCode::none);
  EXPECT_EQ(row().state_in, next);
  EXPECT_NE(row().state_out, version);
  complete(2), complete(3);
  // Both are done again: from what came back.
  ASSERT_EQ(apply(Rollback{b, 1}), ErrorCode::none);
  StepPlan plan;
  plan.ticket = {1, next_step++};
  Row again;
  again.seq = b, again.epoch = 1, again.position = 6, again.source = FeedSource::host(0);
  plan.rows = {again};
  plan.tokens = {7};
  send(Launch{{}, Shared<StepPlan>::of(plan), true});
  ASSERT_EQ(accepted->error.code, ErrorCode::none);
  EXPECT_EQ(row().state_in, version);
}

TEST_F(RouterSpillState, WhatCannotBeReadBackIsComputedAgainFromNoState) {
  const SeqId a = settled(6);
  ASSERT_EQ(apply(SaveSequenceState{a}), ErrorCode::none);
  copies_to_the_end();
  restore(a, 6, 7);
  was_read(), copied(), was_read(), copied();
  was_read(Error{ErrorCode::bad_file, "the last part is damaged"});
  ASSERT_FALSE(opened.back().restored);
  EXPECT_EQ(opened.back().cached_len, 0u);
  ASSERT_EQ(launch(next_step++, opened.back().seq, 0, 7), ErrorCode::none);
  EXPECT_EQ(row().state_in, kNone);
}

// The state before the last known position is not there, so that one cannot be computed once more.
TEST_F(RouterSpillState, ARestoreOfEveryKnownPositionIsRefused) {
  const SeqId a = settled(6);
  ASSERT_EQ(apply(SaveSequenceState{a}), ErrorCode::none);
  copies_to_the_end();
  restore(a, 6, 6);
  EXPECT_EQ(opened.back().error.code, ErrorCode::bad_plan);
}

TEST_F(RouterSpillState, WithoutVersionsForItsRowsASequenceWaits) {
  const SeqId a = settled(6);
  ASSERT_EQ(apply(SaveSequenceState{a}), ErrorCode::none);
  copies_to_the_end();
  (void)settled(4, 2), (void)settled(4, 3);
  restore(a, 6, 7);
  EXPECT_EQ(opened.back().error.code, ErrorCode::slot_exhausted);
  EXPECT_TRUE(reads.empty()) << "its file is untouched";
}

}  // namespace
}  // namespace troupe::actors
