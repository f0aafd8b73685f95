// The router's rules, message by message: tickets (R6), ring (R4), fences (R3), the ledger (R8), epochs (R2).
#include "tests/actors/router/rig.h"

namespace troupe::actors {
namespace {

TEST_F(RouterTest, ALaunchReservesBlocksAndBringsTheEntriesThatItWrites) {
  const SeqId seq = open();
  ASSERT_EQ(launch(1, {host_row(seq, 0, 6)}), ErrorCode::none);
  EXPECT_EQ(accepted->facts.used_blocks, 2u);
  ASSERT_EQ(enqueued.size(), 1u);
  EXPECT_EQ(enqueued[0]->deltas.size(), 2u);
  ASSERT_EQ(launch(2, {fed_row(seq, 6, 1, 0)}), ErrorCode::none);
  ASSERT_EQ(enqueued[1]->deltas.size(), 1u) << "the block that it writes, and no other";
  EXPECT_EQ(enqueued[1]->deltas[0].index, 1u);
  EXPECT_EQ(enqueued[1]->deltas[0].block, enqueued[0]->deltas[1].block);
  EXPECT_EQ(enqueued[1]->rows[0].feed_tag, (Ticket{1, 1}.tag()));
  EXPECT_EQ(enqueued[1]->rows[0].feed_cells, enqueued[0]->slot.slot);
  EXPECT_NE(enqueued[1]->slot.slot, enqueued[0]->slot.slot);
}

TEST_F(RouterTest, RefusesAPlanThatContradictsItsBooks) {
  const SeqId a = open(1), b = open(2);
  Row wrong_epoch = host_row(a, 0);
  wrong_epoch.epoch = 3;
  EXPECT_EQ(launch(1, {wrong_epoch}), ErrorCode::bad_plan);
  EXPECT_EQ(launch(2, {host_row(a, 1)}), ErrorCode::bad_plan) << "a position that was skipped";
  EXPECT_EQ(launch(3, {host_row(SeqId{1, 999}, 0)}), ErrorCode::bad_plan) << "no such sequence";
  EXPECT_EQ(launch(4, {host_row(SeqId{2, a.number}, 0)}), ErrorCode::bad_plan) << "another router's sequence (R6)";
  EXPECT_EQ(launch(5, {host_row(a, 0), host_row(a, 1)}), ErrorCode::bad_plan) << "two rows of one sequence";
  EXPECT_EQ(launch(6, {host_row(a, 0, 17)}), ErrorCode::bad_plan) << "over the token budget, and past the plan's tokens";
  EXPECT_EQ(launch(7, {}), ErrorCode::bad_plan);
  EXPECT_EQ(launch(8, {fed_row(a, 0, 3, 0)}), ErrorCode::bad_plan) << "fed from a step that never opened";
  ASSERT_EQ(launch(9, {host_row(a, 0), host_row(b, 0)}), ErrorCode::none);
  EXPECT_EQ(launch(9, {host_row(a, 1)}), ErrorCode::bad_plan) << "a ticket is used once";
  EXPECT_EQ(launch(10, {fed_row(a, 1, 9, 1)}), ErrorCode::bad_plan) << "fed from another sequence's row";
  EXPECT_EQ(launch(11, {fed_row(a, 1, 9, 7)}), ErrorCode::bad_plan) << "fed from a row that is none";
  EXPECT_EQ(launch(12, {fed_row(a, 1, 9, 0)}), ErrorCode::none);
  EXPECT_EQ(core.facts().used_blocks, 2u) << "what was refused reserved nothing";
}

TEST_F(RouterTest, ABatchOfLogitsRowsOverTheLimitIsRefused) {
  Row a = host_row(open(1), 0), b = host_row(open(2), 0);
  a.readback = b.readback = RowReadback::logits;
  EXPECT_EQ(launch(1, {a, b}), ErrorCode::bad_plan);
  b.readback = RowReadback::argmax;
  EXPECT_EQ(launch(2, {a, b}), ErrorCode::none);
  EXPECT_EQ(enqueued[0]->n_logits, 1u);
}

// R8, R10: all or nothing, with the row and the number.
TEST_F(RouterTest, KvExhaustedNamesTheFirstRowThatDoesNotFitAndTheMissingBlocks) {
  const SeqId a = open(1), b = open(2), c = open(3);
  ASSERT_EQ(launch(1, {host_row(a, 0, 16)}), ErrorCode::none);  // 4 blocks
  ASSERT_EQ(launch(2, {host_row(b, 0, 12)}), ErrorCode::none);  // 3 blocks; 1 is free
  complete(1);
  EXPECT_EQ(launch(3, {fed_row(b, 12, 2, 0), host_row(c, 0, 8)}), ErrorCode::kv_exhausted);
  EXPECT_EQ(accepted->error.row, 1u);
  EXPECT_EQ(accepted->error.missing_blocks, 2u);
  EXPECT_EQ(core.facts().free_blocks, 1u);
  EXPECT_EQ(launch(4, {fed_row(b, 12, 2, 0)}), ErrorCode::none);
}

// R3: finished is not free.
TEST_F(RouterTest, AReleasedSequenceReturnsAtItsFence) {
  const SeqId a = open(1), b = open(2);
  ASSERT_EQ(launch(1, {host_row(a, 0, 4), host_row(b, 0, 4)}), ErrorCode::none);
  ASSERT_EQ(launch(2, {fed_row(a, 4, 1, 0), fed_row(b, 4, 1, 1)}), ErrorCode::none);
  complete(1);
  ASSERT_EQ(apply(ReleaseSeq{a}), ErrorCode::none);
  EXPECT_TRUE(applied->outcome.fenced);
  EXPECT_EQ(core.facts().fenced_blocks, 2u);
  EXPECT_EQ(core.facts().free_blocks, 4u);
  EXPECT_EQ(core.facts().free_slots, 2u) << "its slot is fenced too";
  EXPECT_EQ(launch(3, {host_row(a, 5)}), ErrorCode::bad_plan) << "it has left scheduling at once";
  EXPECT_EQ(apply(ReleaseSeq{a}), ErrorCode::bad_plan) << "freeing is once";
  complete(2);
  EXPECT_EQ(core.facts().fenced_blocks, 0u);
  EXPECT_EQ(core.facts().free_blocks, 6u);
  EXPECT_EQ(core.facts().free_slots, 3u);
}

TEST_F(RouterTest, AReleaseWithNothingInFlightIsImmediate) {
  const SeqId a = open();
  ASSERT_EQ(launch(1, {host_row(a, 0, 5)}), ErrorCode::none);
  complete(1);
  ASSERT_EQ(apply(ReleaseSeq{a}), ErrorCode::none);
  EXPECT_FALSE(applied->outcome.fenced);
  EXPECT_EQ(applied->outcome.blocks, 2u);
  EXPECT_EQ(core.facts().free_blocks, 8u);
}

// R2: launched length falls to settled length, the epoch rises, the blocks stay.
TEST_F(RouterTest, ARollbackDisownsWhatIsInFlight) {
  const SeqId a = open();
  ASSERT_EQ(launch(1, {host_row(a, 0, 4)}), ErrorCode::none);
  ASSERT_EQ(launch(2, {fed_row(a, 4, 1, 0)}), ErrorCode::none);
  complete(1);
  Row again = host_row(a, 4);
  again.epoch = 1;
  ASSERT_EQ(launch(3, {again}, {Commit{a, 0, 4}, Rollback{a, 1}}), ErrorCode::none);
  EXPECT_EQ(core.facts().used_blocks, 2u) << "the reservation of the disowned row stays";
  EXPECT_EQ(apply(Commit{a, 0, 5}), ErrorCode::bad_plan) << "a commit of an older epoch";
  EXPECT_EQ(apply(Rollback{a, 1}), ErrorCode::bad_plan) << "an epoch only rises";
  complete(2);
  complete(3);
  EXPECT_EQ(apply(Commit{a, 1, 5}), ErrorCode::none);
  EXPECT_EQ(apply(Commit{a, 1, 4}), ErrorCode::bad_plan) << "settled length never falls";
  EXPECT_EQ(apply(Commit{a, 1, 6}), ErrorCode::bad_plan) << "nor passes the launched length";
}

// R4: a slot is reused only after its result was read.
TEST_F(RouterTest, RingSlotsReturnWhenTheirResultOrTheirLogitsWereRead) {
  const SeqId a = open(1);
  Row logits = host_row(a, 0);
  logits.readback = RowReadback::logits;
  ASSERT_EQ(launch(1, {logits}), ErrorCode::none);
  complete(1, 1);
  ASSERT_EQ(settled.size(), 1u);
  EXPECT_EQ(core.facts().free_ring_slots, 2u) << "the logits are still in it";
  ASSERT_EQ(launch(2, {host_row(a, 1)}), ErrorCode::none);
  ASSERT_EQ(launch(3, {fed_row(a, 2, 2, 0)}), ErrorCode::none);
  complete(2);
  const std::uint32_t held = enqueued[0]->slot.slot;
  ASSERT_EQ(launch(4, {fed_row(a, 3, 3, 0)}), ErrorCode::none);
  EXPECT_NE(enqueued.back()->slot.slot, held);
  complete(3);
  complete(4);
  EXPECT_EQ(apply(ReadLogits{{1, 1}}), ErrorCode::none);
  EXPECT_EQ(core.facts().free_ring_slots, 3u);
  EXPECT_EQ(apply(ReadLogits{{1, 1}}), ErrorCode::bad_plan) << "once";
}

TEST_F(RouterTest, ExhaustionOfTheRingIsAnErrorAndNeverAnOverwrite) {
  const SeqId a = open(1);
  ASSERT_EQ(launch(1, {host_row(a, 0)}), ErrorCode::none);
  ASSERT_EQ(launch(2, {fed_row(a, 1, 1, 0)}), ErrorCode::none);
  EXPECT_EQ(launch(3, {fed_row(a, 2, 2, 0)}), ErrorCode::ring_exhausted) << "depth 2";
  complete(1);
  EXPECT_EQ(launch(4, {fed_row(a, 2, 2, 0)}), ErrorCode::none);
}

// The cells of a settled step stay readable until its slot is taken by a later one, and a plan never takes that slot
// itself.
TEST_F(RouterTest, APlanMayBeFedFromAStepThatSettledMeanwhile) {
  const SeqId a = open(1), b = open(2);
  ASSERT_EQ(launch(1, {host_row(a, 0)}), ErrorCode::none);
  complete(1);
  ASSERT_EQ(launch(2, {fed_row(a, 1, 1, 0), host_row(b, 0)}), ErrorCode::none);
  EXPECT_NE(enqueued[1]->slot.slot, enqueued[0]->slot.slot);
  complete(2);
  for (std::uint64_t step = 3; step <= 5; ++step) {
    ASSERT_EQ(launch(step, {host_row(b, static_cast<std::uint32_t>(step) - 2)}), ErrorCode::none);
    complete(step);
  }
  EXPECT_EQ(launch(6, {fed_row(a, 2, 2, 0)}), ErrorCode::bad_plan) << "its cells are another step's now";
}

TEST_F(RouterTest, EachTicketIsAwaitedOnce) {
  const SeqId a = open();
  ASSERT_EQ(launch(1, {host_row(a, 0)}, {}, false), ErrorCode::none);
  complete(1);
  EXPECT_TRUE(settled.empty()) << "nobody asked yet";
  EXPECT_EQ(core.facts().free_ring_slots, 2u);
  send(Await{{}, {1, 1}});
  ASSERT_EQ(settled.size(), 1u);
  EXPECT_TRUE(settled[0].result->ok());
  send(Await{{}, {1, 1}});
  EXPECT_EQ(settled[1].result->error.code, ErrorCode::unknown_ticket);
  EXPECT_NE(settled[1].result->error.what.find("t1.1"), std::string::npos) << "it names the ticket";
  send(Await{{}, {1, 77}});
  EXPECT_EQ(settled[2].result->error.code, ErrorCode::unknown_ticket);
  ASSERT_EQ(launch(2, {host_row(a, 1)}), ErrorCode::none);
  send(Await{{}, {1, 2}});
  EXPECT_EQ(settled[3].result->error.code, ErrorCode::twice_awaited);
}

TEST_F(RouterTest, AFailedStepsTablesAreSentAgain) {
  const SeqId a = open();
  ASSERT_EQ(launch(1, {host_row(a, 0, 8)}), ErrorCode::none);
  StepResult failed;
  failed.ticket = {1, 1};
  failed.error = {DeviceError::Phase::forward, ErrorCode::device_failed, 0, 0, "no"};
  send(Completed{{}, enqueued[0]->slot.slot, Shared<StepResult>::of(failed)});
  Row again = host_row(a, 4, 4);
  again.epoch = 1;
  ASSERT_EQ(launch(2, {again}, {Commit{a, 0, 4}, Rollback{a, 1}}), ErrorCode::none);
  EXPECT_EQ(enqueued[1]->deltas.size(), 2u) << "the one that the row writes, and the one before it";
}

TEST_F(RouterTest, LateOrForeignCompletionsAreDropped) {
  const SeqId a = open();
  ASSERT_EQ(launch(1, {host_row(a, 0)}), ErrorCode::none);
  complete(1);
  complete(1);
  EXPECT_EQ(settled.size(), 1u);
  EXPECT_EQ(core.facts().in_flight, 0u);
}

TEST_F(RouterTest, ReserveCompactAndDetach) {
  const SeqId a = open(1);
  ASSERT_EQ(launch(1, {host_row(a, 0, 5)}), ErrorCode::none);
  EXPECT_EQ(apply(CompactSlot{a, 3}), ErrorCode::not_quiescent);
  EXPECT_EQ(apply(DetachSlot{a}), ErrorCode::not_quiescent);
  complete(1);
  ASSERT_EQ(apply(ReserveKv{a, 9}), ErrorCode::none);
  EXPECT_EQ(applied->outcome.blocks, 1u);
  EXPECT_EQ(apply(ReserveKv{a, 33}), ErrorCode::bad_plan) << "past the context";
  ASSERT_EQ(apply(CompactSlot{a, 3}), ErrorCode::none);
  ASSERT_EQ(launch(2, {host_row(a, 5)}), ErrorCode::none);
  EXPECT_EQ(enqueued[1]->rows[0].slot, 3u);
  std::uint32_t moved = 0;
  for (const TableDelta& d : enqueued[1]->deltas) moved += d.slot == 3 ? 1 : 0;
  EXPECT_EQ(moved, 2u) << "every entry that the row reads or writes";
  complete(2);
  ASSERT_EQ(apply(DetachSlot{a}), ErrorCode::none);
  EXPECT_EQ(core.facts().free_slots, 4u);
  EXPECT_EQ(core.facts().used_blocks, 3u) << "a parked sequence keeps its blocks";
  EXPECT_EQ(launch(3, {host_row(a, 6)}), ErrorCode::bad_plan);
  ASSERT_EQ(apply(ReleaseSeq{a}), ErrorCode::none);
  EXPECT_EQ(core.facts().free_blocks, 8u);
  EXPECT_EQ(core.facts().free_slots, 4u);
}

TEST_F(PrefixTest, SettledFullBlocksAreSharedAndNeverWritten) {
  const SeqId a = open_with(1, prompt);
  EXPECT_EQ(opened->cached_len, 0u);
  ASSERT_EQ(launch(1, {host_row(a, 0, 9)}), ErrorCode::none);
  open_with(2, prompt);
  EXPECT_EQ(opened->cached_len, 0u) << "nothing of it has settled";
  complete(1);
  ASSERT_EQ(apply(Commit{a, 0, 9}), ErrorCode::none);
  const SeqId b = open_with(3, prompt);
  EXPECT_EQ(opened->cached_len, 8u);
  EXPECT_EQ(opened->facts.used_blocks, 3u);
  ASSERT_EQ(launch(2, {host_row(b, 8)}), ErrorCode::none);
  ASSERT_EQ(enqueued[1]->deltas.size(), 3u) << "the shared entries, and the one that it writes";
  EXPECT_EQ(enqueued[1]->deltas[0].block, enqueued[0]->deltas[0].block);
  EXPECT_NE(enqueued[1]->deltas[2].block, enqueued[0]->deltas[2].block);
  ASSERT_EQ(apply(ReleaseSeq{a}), ErrorCode::none);
  EXPECT_EQ(core.facts().used_blocks, 3u);
  ASSERT_EQ(apply(ReleaseSeq{b}), ErrorCode::none);
  EXPECT_EQ(core.facts().fenced_blocks, 3u) << "step 2 reads the shared ones too";
  EXPECT_EQ(core.facts().cached_blocks, 0u);
  complete(2);
  EXPECT_EQ(core.facts().cached_blocks, 2u);
  EXPECT_EQ(core.facts().free_blocks, 6u);
  EXPECT_EQ(core.stats().prefix_hits, 1u);
}

TEST_F(PrefixTest, AnotherGenerationOfTheAdapterHitsNothing) {
  show({1, 1}), show({2, 2});
  const SeqId a = open_with(1, prompt, {1, 1});
  ASSERT_EQ(launch(1, {host_row(a, 0, 9, {1, 1})}), ErrorCode::none);
  complete(1);
  ASSERT_EQ(apply(Commit{a, 0, 9}), ErrorCode::none);
  open_with(2, prompt, {2, 2});
  EXPECT_EQ(opened->cached_len, 0u);
  const SeqId c = open_with(3, prompt, {1, 1});
  EXPECT_EQ(opened->cached_len, 8u);
  // The same slot with another generation.
  ASSERT_EQ(apply(ReleaseSeq{a}), ErrorCode::none);
  ASSERT_EQ(apply(ReleaseSeq{c}), ErrorCode::none);
  lora_change({}, {1, 1});
  send(TableChanged{});
  show({1, 3});
  open_with(4, prompt, {1, 3});
  EXPECT_EQ(opened->error.code, ErrorCode::none);
  EXPECT_EQ(opened->cached_len, 0u);
}

TEST_F(PrefixTest, IdleBlocksAreReclaimedForALaunchAndNotBefore) {
  const SeqId a = open_with(1, prompt);
  ASSERT_EQ(launch(1, {host_row(a, 0, 9)}), ErrorCode::none);
  complete(1);
  ASSERT_EQ(apply(Commit{a, 0, 9}), ErrorCode::none);
  ASSERT_EQ(apply(ReleaseSeq{a}), ErrorCode::none);
  EXPECT_EQ(core.facts().free_blocks, 6u);
  EXPECT_EQ(core.facts().cached_blocks, 2u);
  const SeqId b = open_with(2, {50, 51});
  ASSERT_EQ(launch(2, {host_row(b, 0, 16)}), ErrorCode::none);
  complete(2);
  ASSERT_EQ(launch(3, {host_row(b, 16, 12)}), ErrorCode::none) << "7 of 8 blocks";
  EXPECT_EQ(core.facts().cached_blocks, 1u);
  EXPECT_EQ(core.stats().reclaimed, 1u);
  complete(3);
  const SeqId c = open_with(3, {60, 61});
  EXPECT_EQ(launch(4, {host_row(c, 0, 8)}), ErrorCode::kv_exhausted);
  EXPECT_EQ(accepted->error.missing_blocks, 1u) << "the idle block counts as one that can be had";
  send(Teardown{});
  ASSERT_TRUE(torn_down);
  EXPECT_EQ(torn_down->facts.free_blocks, 8u);
}

TEST_F(RouterTest, QuiesceIsAnsweredWhenNothingIsInFlight) {
  const SeqId a = open();
  ASSERT_EQ(launch(1, {host_row(a, 0)}), ErrorCode::none);
  applied.reset();
  send(Apply{{}, Quiesce{}});
  EXPECT_FALSE(applied);
  EXPECT_EQ(apply(Quiesce{}), ErrorCode::bad_plan) << "one is pending";
  applied.reset();
  complete(1);
  ASSERT_TRUE(applied);
  EXPECT_EQ(applied->error.code, ErrorCode::none);
  EXPECT_EQ(apply(Quiesce{}), ErrorCode::none);
}

TEST_F(RouterTest, SlotsRunOutWithAnErrorAndComeBack) {
  for (std::uint64_t c = 1; c <= 4; ++c) open(c);
  const SeqId first = opened->seq;
  open(5);
  EXPECT_EQ(opened->error.code, ErrorCode::slot_exhausted);
  ASSERT_EQ(apply(ReleaseSeq{first}), ErrorCode::none);
  const SeqId again = open(6);
  EXPECT_NE(again, first) << "a SeqId is never used twice";
}

TEST_F(RouterTest, ALostDeviceRefusesEverything) {
  const SeqId a = open();
  ASSERT_EQ(launch(1, {host_row(a, 0)}), ErrorCode::none);
  StepResult lost;
  lost.ticket = {1, 1};
  lost.error = {DeviceError::Phase::readback, ErrorCode::device_lost, 0, 0, "gone"};
  send(Completed{{}, enqueued[0]->slot.slot, Shared<StepResult>::of(lost)});
  EXPECT_EQ(settled[0].result->error.code, ErrorCode::device_lost);
  EXPECT_EQ(launch(2, {host_row(a, 1)}), ErrorCode::device_lost);
  EXPECT_EQ(apply(ReleaseSeq{a}), ErrorCode::device_lost);
  open(2);
  EXPECT_EQ(opened->error.code, ErrorCode::device_lost);
}

TEST_F(RouterTest, TeardownSettlesWhatIsOpenAndThenAnswersClosed) {
  const SeqId a = open();
  ASSERT_EQ(launch(1, {host_row(a, 0, 8)}), ErrorCode::none);
  send(Teardown{});
  EXPECT_FALSE(torn_down);
  EXPECT_EQ(launch(2, {fed_row(a, 8, 1, 0)}), ErrorCode::closed);
  complete(1);
  EXPECT_EQ(settled.size(), 1u);
  ASSERT_TRUE(torn_down);
  EXPECT_EQ(torn_down->facts.free_blocks, 8u);
  EXPECT_EQ(torn_down->facts.free_slots, 4u);
  EXPECT_EQ(torn_down->facts.free_ring_slots, 3u);
  open(2);
  EXPECT_EQ(opened->error.code, ErrorCode::closed);
}

}  // namespace
}  // namespace troupe::actors
