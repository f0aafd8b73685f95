// Saving a sequence and bringing it back, message by message: fences (R3), the ledger (R8), places (R11), and what goes
// wrong on the way.
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "tests/actors/router/spill_rig.h"

namespace troupe::actors {
namespace {

TEST_F(RouterSpill, ASaveGoesInPiecesAndItsBlocksReturnWhenTheLastIsCopied) {
  const SeqId seq = settled(10);
  ASSERT_EQ(apply(SaveSequenceState{seq}), ErrorCode::none);
  EXPECT_TRUE(applied->outcome.fenced);
  EXPECT_EQ(applied->facts.fenced_blocks, 3u);
  EXPECT_EQ(applied->facts.free_slots, 3u);
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_TRUE(copies[0].out);
  EXPECT_EQ(copies[0].blocks.size(), 2u);
  EXPECT_EQ(copies[0].handles.staging, 100u);
  EXPECT_TRUE(writes.empty());
  copied();
  ASSERT_EQ(writes.size(), 1u);
  EXPECT_EQ(writes[0].seq, seq);
  EXPECT_EQ(writes[0].positions, 10u);
  EXPECT_EQ(writes[0].n_blocks, 3u);
  EXPECT_EQ(writes[0].count, 2u);
  EXPECT_EQ(writes[0].data, 100u);
  EXPECT_EQ(core.facts().fenced_blocks, 3u);
  written();
  ASSERT_EQ(copies.size(), 2u);
  EXPECT_EQ(copies[1].blocks.size(), 1u);
  EXPECT_TRUE(saved.empty());
  copied();
  EXPECT_EQ(core.facts().free_blocks, 8u) << "what is left to do is the file's";
  EXPECT_EQ(core.facts().free_slots, 4u);
  EXPECT_TRUE(saved.empty());
  written();
  ASSERT_EQ(saved.size(), 1u);
  EXPECT_EQ(saved[0].seq, seq);
  EXPECT_EQ(saved[0].positions, 10u);
  EXPECT_EQ(saved[0].error.code, ErrorCode::none);
}

TEST_F(RouterSpill, BlocksWaitForTheStepsThatNameTheSequenceToo) {
  const SeqId seq = settled(8);
  ASSERT_EQ(launch(2, seq, 8, 1), ErrorCode::none);
  ASSERT_EQ(apply(SaveSequenceState{seq}), ErrorCode::none);
  EXPECT_EQ(order, "step step copy ") << "the copy follows the steps in the stream's order";
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].blocks.size(), 2u) << "settled positions only";
  copied();
  EXPECT_EQ(core.facts().fenced_blocks, 3u);
  written();
  EXPECT_EQ(saved.size(), 1u);
  EXPECT_EQ(core.facts().fenced_blocks, 3u);
  complete(2);
  EXPECT_EQ(core.facts().free_blocks, 8u);
}

TEST_F(RouterSpill, TheSequenceIsOverAtOnce) {
  const SeqId seq = settled(8);
  ASSERT_EQ(apply(SaveSequenceState{seq}), ErrorCode::none);
  EXPECT_EQ(launch(2, seq, 8, 1), ErrorCode::bad_plan);
  EXPECT_EQ(apply(ReleaseSeq{seq}), ErrorCode::bad_plan);
  EXPECT_EQ(apply(SaveSequenceState{seq}), ErrorCode::bad_plan);
  save_all();
}

TEST_F(RouterSpill, WithoutAPlaceTheSequenceIsReleasedAndToldSo) {
  const SeqId a = settled(4, 1), b = settled(4, 2), c = settled(4, 3);
  ASSERT_EQ(apply(SaveSequenceState{a}), ErrorCode::none);
  ASSERT_EQ(apply(SaveSequenceState{b}), ErrorCode::none);
  ASSERT_EQ(apply(SaveSequenceState{c}), ErrorCode::none);
  ASSERT_EQ(saved.size(), 1u);
  EXPECT_EQ(saved[0].seq, c);
  EXPECT_EQ(saved[0].error.code, ErrorCode::overloaded);
  EXPECT_EQ(core.facts().free_blocks, 6u);
  EXPECT_EQ(core.stats().save_failures, 1u);
}

TEST_F(RouterSpill, ACopyThatFailsEndsTheSave) {
  const SeqId seq = settled(10);
  ASSERT_EQ(apply(SaveSequenceState{seq}), ErrorCode::none);
  copied(), written();
  copied(device_failed());
  ASSERT_EQ(saved.size(), 1u);
  EXPECT_EQ(saved[0].error.code, ErrorCode::device_failed);
  ASSERT_EQ(drops.size(), 1u) << "the file has a piece already";
  EXPECT_EQ(drops[0], seq);
  EXPECT_EQ(core.facts().free_blocks, 8u);
  const SeqId next = settled(4, 2);
  EXPECT_EQ(apply(SaveSequenceState{next}), ErrorCode::none);
  EXPECT_EQ(copies.back().handles.place, 0u) << "the place is free again";
}

TEST_F(RouterSpill, AFileThatCannotBeWrittenEndsTheSave) {
  const SeqId seq = settled(10);
  ASSERT_EQ(apply(SaveSequenceState{seq}), ErrorCode::none);
  copied();
  written(Error{ErrorCode::io_failed, "full"});
  ASSERT_EQ(saved.size(), 1u);
  EXPECT_EQ(saved[0].error.code, ErrorCode::io_failed);
  EXPECT_EQ(saved[0].error.what, "full");
  EXPECT_EQ(core.facts().free_blocks, 8u);
  EXPECT_TRUE(drops.empty());
}

TEST_F(RouterSpill, APlaceWhoseCopyMayStillRunIsNotUsedAgain) {
  const SeqId a = settled(4, 1), b = settled(4, 2);
  ASSERT_EQ(apply(SaveSequenceState{a}), ErrorCode::none);
  copied(DeviceError{DeviceError::Phase::forward, ErrorCode::device_failed, 0, 0, "no event"});
  EXPECT_EQ(saved.size(), 1u);
  ASSERT_EQ(apply(SaveSequenceState{b}), ErrorCode::none);
  EXPECT_EQ(copies.back().handles.place, 1u);
}

TEST_F(RouterSpill, WhatWasSavedComesBackIntoOtherBlocksAndGoesOn) {
  const SeqId seq = settled(10);
  ASSERT_EQ(apply(SaveSequenceState{seq}), ErrorCode::none);
  save_all();
  restore(seq, 10, 11);
  EXPECT_EQ(opened.size(), 1u) << "answered when it is there";
  EXPECT_EQ(core.facts().used_blocks, 3u);
  ASSERT_EQ(reads.size(), 1u);
  EXPECT_EQ(reads[0].seq, seq);
  EXPECT_EQ(reads[0].positions, 10u);
  EXPECT_EQ(reads[0].count, 2u);
  was_read();
  ASSERT_FALSE(copies.back().out);
  EXPECT_EQ(copies.back().blocks.size(), 2u);
  const std::vector<BlockId> first = copies.back().blocks;
  copied();
  ASSERT_EQ(reads.size(), 2u);
  EXPECT_EQ(reads[1].begin, 2u);
  was_read();
  const BlockId last = copies.back().blocks[0];
  copied();
  ASSERT_EQ(opened.size(), 2u);
  EXPECT_TRUE(opened[1].restored);
  EXPECT_EQ(opened[1].cached_len, 10u);
  EXPECT_EQ(opened[1].restore, seq);
  EXPECT_NE(opened[1].seq, seq) << "a sequence's id never comes again";
  ASSERT_EQ(launch(2, opened[1].seq, 10, 1), ErrorCode::none);
  ASSERT_EQ(enqueued.back()->deltas.size(), 3u) << "the step brings the whole table";
  EXPECT_EQ(enqueued.back()->deltas[0].block, first[0]);
  EXPECT_EQ(enqueued.back()->deltas[1].block, first[1]);
  EXPECT_EQ(enqueued.back()->deltas[2].block, last);
  complete(2);
  EXPECT_EQ(apply(ReleaseSeq{opened[1].seq}), ErrorCode::none);
  EXPECT_EQ(core.facts().free_blocks, 8u);
  EXPECT_EQ(core.stats().restores, 1u);
}

// All known positions were settled, and the last one's logits are gone: it is computed once more.
TEST_F(RouterSpill, OneKnownTokenIsLeftToCompute) {
  const SeqId seq = settled(8);
  ASSERT_EQ(apply(SaveSequenceState{seq}), ErrorCode::none);
  save_all();
  restore(seq, 8, 8);
  was_read(), copied();
  EXPECT_EQ(opened.back().cached_len, 7u);
  EXPECT_EQ(launch(2, opened.back().seq, 7, 1), ErrorCode::none);
}

TEST_F(RouterSpill, ARestoreThatDoesNotFitTakesNothing) {
  const SeqId seq = settled(10);
  ASSERT_EQ(apply(SaveSequenceState{seq}), ErrorCode::none);
  save_all();
  (void)settled(16, 2);
  (void)settled(8, 3);
  restore(seq, 10, 11);
  EXPECT_EQ(opened.back().error.code, ErrorCode::kv_exhausted);
  EXPECT_EQ(opened.back().error.missing_blocks, 1u);
  EXPECT_EQ(opened.back().restore, seq);
  EXPECT_FALSE(opened.back().restored);
  EXPECT_EQ(core.facts().free_slots, 2u);
  EXPECT_EQ(core.facts().free_blocks, 2u);
  EXPECT_TRUE(reads.empty());
}

TEST_F(RouterSpill, AFileThatCannotBeReadGivesAnEmptySequence) {
  const SeqId seq = settled(10);
  ASSERT_EQ(apply(SaveSequenceState{seq}), ErrorCode::none);
  save_all();
  restore(seq, 10, 11);
  was_read(), copied();
  was_read(Error{ErrorCode::bad_file, "damaged"});
  ASSERT_EQ(opened.size(), 2u);
  EXPECT_EQ(opened[1].error.code, ErrorCode::none);
  EXPECT_FALSE(opened[1].restored);
  EXPECT_EQ(opened[1].cached_len, 0u);
  EXPECT_EQ(core.facts().free_blocks, 8u);
  EXPECT_EQ(core.stats().restore_failures, 1u);
  EXPECT_EQ(launch(2, opened[1].seq, 0, 11), ErrorCode::none) << "from its tokens";
}

TEST_F(RouterSpill, ACopyThatFailsOnTheWayBackGivesAnEmptySequence) {
  const SeqId seq = settled(10);
  ASSERT_EQ(apply(SaveSequenceState{seq}), ErrorCode::none);
  save_all();
  restore(seq, 10, 11);
  was_read(), copied(device_failed());
  EXPECT_FALSE(opened.back().restored);
  EXPECT_EQ(opened.back().cached_len, 0u);
  EXPECT_EQ(core.facts().used_blocks, 0u);
  ASSERT_EQ(drops.size(), 1u) << "its file was not read to the end";
}

TEST_F(RouterSpill, QuiesceAndTeardownWaitForCopies) {
  const SeqId seq = settled(10);
  ASSERT_EQ(apply(SaveSequenceState{seq}), ErrorCode::none);
  (void)apply(Quiesce{});
  EXPECT_FALSE(applied);
  copied();
  EXPECT_TRUE(applied) << "nothing is in flight on the device";
  send(Teardown{});
  EXPECT_FALSE(torn_down) << "the spill actor still reads the place's memory";
  written();
  ASSERT_TRUE(torn_down);
  EXPECT_EQ(drops.size(), 1u);
  EXPECT_EQ(torn_down->facts.free_blocks, 8u);
  EXPECT_EQ(torn_down->facts.free_slots, 4u);
}

TEST_F(RouterSpill, TeardownInTheMiddleOfARestoreGivesEverythingBack) {
  const SeqId seq = settled(10);
  ASSERT_EQ(apply(SaveSequenceState{seq}), ErrorCode::none);
  save_all();
  restore(seq, 10, 11);
  was_read();
  send(Teardown{});
  EXPECT_FALSE(torn_down);
  copied();
  ASSERT_TRUE(torn_down);
  EXPECT_EQ(opened.back().error.code, ErrorCode::closed);
  EXPECT_EQ(torn_down->facts.free_blocks, 8u);
  EXPECT_EQ(torn_down->facts.free_slots, 4u);
}

TEST_F(RouterSpill, ALostDeviceEndsWhatIsSavedAndBroughtBack) {
  const SeqId a = settled(10, 1), b = settled(4, 2);
  ASSERT_EQ(apply(SaveSequenceState{a}), ErrorCode::none);
  save_all();
  restore(a, 10, 11);
  ASSERT_EQ(apply(SaveSequenceState{b}), ErrorCode::none);
  copied(DeviceError{DeviceError::Phase::readback, ErrorCode::device_lost, 0, 0, "gone"});
  EXPECT_EQ(saved.back().error.code, ErrorCode::device_lost);
  was_read();
  EXPECT_EQ(opened.back().error.code, ErrorCode::device_lost);
  EXPECT_EQ(core.facts().used_blocks + core.facts().fenced_blocks, 0u);
  EXPECT_EQ(core.facts().free_slots, 4u);
}

TEST_F(RouterSpill, LateAndStrangeAnswersAreCountedAndDropped) {
  const SeqId seq = settled(4);
  send(CopyDone{{}, {1, 1}, 0, {}});
  send(CopyDone{{}, {1, 1}, 9, {}});
  send(StateWritten{{}, 0, seq, {}});
  send(StateRead{{}, 9, seq, {}});
  ASSERT_EQ(apply(SaveSequenceState{seq}), ErrorCode::none);
  send(CopyDone{{}, {1, 99}, 0, {}});
  send(StateWritten{{}, 0, seq, {}});
  EXPECT_EQ(core.stats().late, 6u);
  copied();
  send(StateWritten{{}, 0, {1, 99}, {}});
  EXPECT_EQ(core.stats().late, 7u);
  written();
  EXPECT_EQ(saved.size(), 1u);
}

}  // namespace
}  // namespace troupe::actors
