// Copies on a stream of their own: what orders them behind the steps, that nothing waits for an event before it is recorded (R12),
// and what becomes of a copy that may be on its stream for ever (R3).
#include <gtest/gtest.h>

#include "tests/actors/router/spill_rig.h"

namespace troupe::actors {
namespace {

class RouterCopyStream : public RouterSpill {
 protected:
  RouterCopyStream() : RouterSpill(50) {}
  SeqId saved_seq(std::uint32_t positions) {
    const SeqId seq = settled(positions);
    EXPECT_EQ(apply(SaveSequenceState{seq}), ErrorCode::none);
    marked();
    save_all();
    return seq;
  }
};

TEST_F(RouterCopyStream, ASaveWaitsForWhatIsOnTheComputeStreamByThen) {
  const SeqId seq = settled(10);
  ASSERT_EQ(launch(2, seq, 10, 1), ErrorCode::none);
  ASSERT_EQ(apply(SaveSequenceState{seq}), ErrorCode::none);
  EXPECT_EQ(order, "step step mark ") << "the copy waits until the event is said to be recorded";
  ASSERT_EQ(marks.size(), 1u);
  EXPECT_EQ(marks[0].event, 50u);
  EXPECT_EQ(core.facts().fenced_blocks, 3u);
  marked();
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].after, 50u);
  EXPECT_EQ(copies[0].handles.order, 50u);
  complete(2);
  EXPECT_EQ(core.facts().fenced_blocks, 3u) << "the copy reads them still";
  copied();
  written();
  ASSERT_EQ(copies.size(), 2u);
  EXPECT_EQ(copies[1].after, 0u) << "the stream has waited";
  EXPECT_EQ(marks.size(), 1u);
  copied();
  EXPECT_EQ(core.facts().free_blocks, 8u);
  written();
  EXPECT_EQ(saved.size(), 1u);
  EXPECT_EQ(core.stats().marks, 1u);
}

TEST_F(RouterCopyStream, ARestoreIsOrderedToo) {
  const SeqId seq = saved_seq(10);
  restore(seq, 10, 12);
  was_read();
  ASSERT_EQ(marks.size(), 2u);
  EXPECT_EQ(copies.size(), 2u);
  marked();
  ASSERT_EQ(copies.size(), 3u);
  EXPECT_FALSE(copies[2].out);
  EXPECT_EQ(copies[2].after, 50u);
  copied();
  was_read();
  ASSERT_EQ(copies.size(), 4u);
  EXPECT_EQ(copies[3].after, 0u);
  const std::size_t answered = opened.size();
  copied();
  ASSERT_EQ(opened.size(), answered + 1) << "its first step comes when the copies have completed";
  EXPECT_TRUE(opened.back().restored);
  EXPECT_EQ(opened.back().cached_len, 10u);
}

TEST_F(RouterCopyStream, AnEventThatIsNotRecordedEndsTheSave) {
  const SeqId seq = settled(8);
  ASSERT_EQ(apply(SaveSequenceState{seq}), ErrorCode::none);
  marked({ErrorCode::device_failed, "no"});
  EXPECT_TRUE(copies.empty());
  ASSERT_EQ(saved.size(), 1u);
  EXPECT_EQ(saved[0].error.code, ErrorCode::device_failed);
  EXPECT_EQ(core.facts().free_blocks, 8u);
  ASSERT_EQ(apply(SaveSequenceState{settled(4, 2)}), ErrorCode::none);
  EXPECT_EQ(marks.back().place, 0u) << "the place is free again";
}

TEST_F(RouterCopyStream, AnEventThatIsNotRecordedEndsTheRestoreAndItIsComputedAgain) {
  const SeqId seq = saved_seq(10);
  restore(seq, 10, 12);
  was_read();
  marked({ErrorCode::device_failed, "no"});
  EXPECT_EQ(copies.size(), 2u);
  EXPECT_FALSE(opened.back().restored);
  EXPECT_EQ(opened.back().error.code, ErrorCode::none);
  EXPECT_EQ(drops, std::vector<SeqId>{seq}) << "it was not read to its end";
  EXPECT_EQ(core.facts().free_blocks, 8u);
}

TEST_F(RouterCopyStream, WordsOfAnotherMarkAreLate) {
  const SeqId seq = settled(8);
  ASSERT_EQ(apply(SaveSequenceState{seq}), ErrorCode::none);
  send(EventRecorded{{}, {1, 99}, 0, {}});
  send(EventRecorded{{}, marks.back().mark, 1, {}});
  send(EventRecorded{{}, marks.back().mark, 9, {}});
  EXPECT_TRUE(copies.empty());
  EXPECT_EQ(core.stats().late, 3u);
  marked();
  EXPECT_EQ(copies.size(), 1u);
  marked();
  EXPECT_EQ(copies.size(), 1u);
  EXPECT_EQ(core.stats().late, 4u);
}

TEST_F(RouterCopyStream, ATeardownWaitsForTheWordAndSendsNoCopy) {
  const SeqId seq = settled(8);
  ASSERT_EQ(apply(SaveSequenceState{seq}), ErrorCode::none);
  send(Teardown{});
  EXPECT_FALSE(torn_down);
  marked();
  EXPECT_TRUE(copies.empty());
  ASSERT_TRUE(torn_down);
  EXPECT_EQ(torn_down->facts.free_blocks, 8u);
  ASSERT_EQ(saved.size(), 1u);
  EXPECT_EQ(saved[0].error.code, ErrorCode::closed);
}

TEST_F(RouterCopyStream, AQuiesceWaitsForTheWordToo) {
  const SeqId seq = settled(8);
  ASSERT_EQ(apply(SaveSequenceState{seq}), ErrorCode::none);
  (void)apply(Quiesce{});
  EXPECT_FALSE(applied);
  marked();
  EXPECT_FALSE(applied);
  copied();
  EXPECT_TRUE(applied);
}

// It is on its stream, and no event follows it: whoever got its blocks could find them written over.
TEST_F(RouterCopyStream, ACopyInThatNothingEndsMakesTheDeviceUseless) {
  const SeqId seq = saved_seq(8);
  restore(seq, 8, 10);
  was_read();
  marked();
  copied(DeviceError{DeviceError::Phase::forward, ErrorCode::device_failed, 0, 0, "no event"});
  EXPECT_EQ(opened.back().error.code, ErrorCode::device_lost);
  send(Open{{}, {7, 7}, 4, {}, {}, {}, {}, 0});
  EXPECT_EQ(opened.back().error.code, ErrorCode::device_lost);
}

// One out reads blocks whose sequence is gone, into memory that is used no more: nobody minds.
TEST_F(RouterCopyStream, ACopyOutThatNothingEndsCostsItsPlace) {
  const SeqId seq = settled(8);
  ASSERT_EQ(apply(SaveSequenceState{seq}), ErrorCode::none);
  marked();
  copied(DeviceError{DeviceError::Phase::forward, ErrorCode::device_failed, 0, 0, "no event"});
  EXPECT_EQ(saved.back().error.code, ErrorCode::device_failed);
  EXPECT_EQ(core.facts().free_blocks, 8u);
  ASSERT_EQ(apply(SaveSequenceState{settled(4, 2)}), ErrorCode::none);
  EXPECT_EQ(marks.back().place, 1u);
}

}  // namespace
}  // namespace troupe::actors
