// Saving a sequence and bringing it back, message by message: fences (R3), the ledger (R8), places (R11), and what goes
// wrong on the way.
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "actors/router/core.h"

namespace troupe::actors {
namespace {

ModelInfo model() {
  ModelInfo m;
  m.vocab_size = 100;
  m.context_length = 32;
  m.block_size = 4;
  m.kv_blocks = 8;
  m.n_slots = 4;
  m.max_depth = 2;
  m.max_rows = 4;
  m.max_step_tokens = 16;
  m.max_logits_rows = 1;
  m.supports_device_token_feed = true;
  return m;
}

// Two places of two blocks each.
class RouterSpill : public testing::Test {
 protected:
  RouterSpill() {
    RingReady ring;
    for (std::uint32_t i = 0; i < 3; ++i) ring.slots.push_back({i, 0, 0, 0, 0, 0});
    for (std::uint32_t i = 0; i < 2; ++i) ring.places.push_back({i, 10 + i, 100 + i, 2, 64});
    send(ring);
  }
  template <class M>
  void send(const M& m) {
    core.on(m, 0, out);
    EXPECT_EQ(core.check(), "");
    out.drain([&](auto&& x) {
      using T = std::decay_t<decltype(x)>;
      if constexpr (std::is_same_v<T, Opened>)
        opened.push_back(x);
      else if constexpr (std::is_same_v<T, Accepted>)
        accepted = x;
      else if constexpr (std::is_same_v<T, Applied>)
        applied = x;
      else if constexpr (std::is_same_v<T, Enqueue>)
        enqueued.push_back(x.step), order += "step ";
      else if constexpr (std::is_same_v<T, Saved>)
        saved.push_back(x);
      else if constexpr (std::is_same_v<T, CopyBlocks>)
        copies.push_back(x), order += "copy ";
      else if constexpr (std::is_same_v<T, WriteState>)
        writes.push_back(x.piece);
      else if constexpr (std::is_same_v<T, ReadState>)
        reads.push_back(x.piece);
      else if constexpr (std::is_same_v<T, DropState>)
        drops.push_back(x.seq);
      else if constexpr (std::is_same_v<T, TornDown>)
        torn_down = x;
    });
  }
  SeqId open(std::uint64_t client = 1) {
    send(Open{{}, {client, client}, 4, {}, {}, {}, {}, 0});
    return opened.back().seq;
  }
  ErrorCode launch(std::uint64_t step, SeqId seq, std::uint32_t position, std::uint32_t n, std::vector<Effect> effects = {}) {
    StepPlan plan;
    plan.ticket = {1, step};
    Row r;
    r.seq = seq;
    r.position = position;
    r.n_tokens = n;
    r.source = FeedSource::host(0);
    plan.rows = {r};
    plan.effects = std::move(effects);
    plan.tokens.assign(16, 7);
    send(Launch{{}, Shared<StepPlan>::of(plan), true});
    return accepted->error.code;
  }
  ErrorCode apply(Effect e) {
    applied.reset();
    send(Apply{{}, e});
    return applied ? applied->error.code : ErrorCode::none;
  }
  void complete(std::uint64_t step) {
    for (const auto& e : enqueued) {
      if (e->ticket.step != step) continue;
      StepResult r;
      r.ticket = e->ticket;
      r.rows.resize(e->rows.size());
      send(Completed{{}, e->slot.slot, Shared<StepResult>::of(r)});
    }
  }
  void copied(DeviceError error = {}) { send(CopyDone{{}, copies.back().copy, copies.back().handles.place, error}); }
  void written(Error error = {}) { send(StateWritten{{}, writes.back().place, writes.back().seq, error}); }
  void was_read(Error error = {}) { send(StateRead{{}, reads.back().place, reads.back().seq, error}); }
  static DeviceError device_failed() { return {DeviceError::Phase::readback, ErrorCode::device_failed, 0, 0, "failed"}; }

  // A sequence with `n` settled positions.
  SeqId settled(std::uint32_t n, std::uint64_t client = 1) {
    const SeqId seq = open(client);
    const std::uint64_t step = next_step++;
    EXPECT_EQ(launch(step, seq, 0, n), ErrorCode::none);
    complete(step);
    EXPECT_EQ(apply(Commit{seq, 0, n}), ErrorCode::none);
    return seq;
  }
  void save_all() {
    while (saved.empty()) copied(), written();
  }
  void restore(SeqId seq, std::uint32_t positions, std::uint32_t n_tokens, std::uint64_t client = 1) {
    send(Open{{}, {client, client}, n_tokens, {}, {}, {}, seq, positions});
  }

  RouterCore core{RouterConfig{1, 2}, model()};
  RouterOutbox out;
  std::uint64_t next_step = 1;
  std::vector<Opened> opened;
  std::optional<Accepted> accepted;
  std::optional<Applied> applied;
  std::vector<Shared<LaunchedStep>> enqueued;
  std::vector<Saved> saved;
  std::vector<CopyBlocks> copies;
  std::vector<StatePiece> writes, reads;
  std::vector<SeqId> drops;
  std::optional<TornDown> torn_down;
  std::string order;
};

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

// Of a model with a window only the blocks that are still read are saved, and only those come back.
TEST(RouterSpillWindow, WhatLiesBehindTheWindowIsNotSaved) {
  ModelInfo m = model();
  m.window = 5;
  RouterCore core({1, 2}, m);
  RouterOutbox out;
  RingReady ring;
  ring.slots.resize(3);
  ring.places.push_back({0, 1, 1, 4, 64});
  core.on(ring, 0, out);
  const auto last = [&]<class T>(T) {
    T found;
    for (const auto& item : out.items())
      if (const auto* x = std::get_if<T>(&item)) found = *x;
    return found;
  };
  const auto send = [&](const auto& message) {
    core.on(message, 0, out);
    EXPECT_EQ(core.check(), "");
  };
  send(Open{{}, {1, 1}, 14, {}, {}, {}, {}, 0});
  const SeqId seq = last(Opened{}).seq;
  StepPlan plan;
  plan.ticket = {1, 1};
  plan.rows.emplace_back().seq = seq;
  plan.rows[0].n_tokens = 14;
  plan.rows[0].source = FeedSource::host(0);
  plan.tokens.assign(14, 7);
  send(Launch{{}, Shared<StepPlan>::of(plan), true});
  StepResult r;
  r.ticket = plan.ticket;
  r.rows.resize(1);
  send(Completed{{}, 0, Shared<StepResult>::of(r)});
  send(Apply{{}, Commit{seq, 0, 14}});
  EXPECT_EQ(core.facts().used_blocks, 2u) << "positions 10 on are read: blocks 2 and 3";
  send(Apply{{}, SaveSequenceState{seq}});
  EXPECT_EQ(last(CopyBlocks{}).blocks.size(), 2u);
  send(CopyDone{{}, last(CopyBlocks{}).copy, 0, {}});
  EXPECT_EQ(last(WriteState{}).piece.first_block, 2u);
  EXPECT_EQ(last(WriteState{}).piece.n_blocks, 2u);
  send(StateWritten{{}, 0, seq, {}});
  EXPECT_EQ(last(Saved{}).positions, 14u);
  send(Open{{}, {1, 1}, 15, {}, {}, {}, seq, 14});
  EXPECT_EQ(core.facts().used_blocks, 2u);
  EXPECT_EQ(last(ReadState{}).piece.first_block, 2u);
  send(StateRead{{}, 0, seq, {}});
  send(CopyDone{{}, last(CopyBlocks{}).copy, 0, {}});
  const Opened opened = last(Opened{});
  EXPECT_TRUE(opened.restored);
  EXPECT_EQ(opened.cached_len, 14u);
  plan.ticket = {1, 2};
  plan.rows[0].seq = opened.seq;
  plan.rows[0].position = 14;
  plan.rows[0].n_tokens = 1;
  send(Launch{{}, Shared<StepPlan>::of(plan), true});
  const auto& deltas = last(Enqueue{}).step->deltas;
  ASSERT_EQ(deltas.size(), 4u) << "the whole table, with what is behind the window";
  EXPECT_EQ(deltas[0].block, kNoBlock);
  EXPECT_EQ(deltas[1].block, kNoBlock);
  EXPECT_NE(deltas[2].block, kNoBlock);
  send(Open{{}, {2, 2}, 14, {}, {}, {}, seq, 14});
  EXPECT_EQ(last(Opened{}).error.code, ErrorCode::bad_plan) << "its last known position would read what is not there";
}

// The negative control: a fault that gives the blocks back too early is seen by the books.
TEST(RouterSpillFault, BlocksThatReturnBeforeTheCopyAreFound) {
  RouterConfig config{1, 2};
  config.fault = RouterFault::free_before_copy;
  RouterCore core(config, model());
  RouterOutbox out;
  RingReady ring;
  ring.slots.resize(3);
  ring.places.push_back({0, 1, 1, 2, 64});
  core.on(ring, 0, out);
  core.on(Open{{}, {1, 1}, 4, {}, {}, {}, {}, 0}, 0, out);
  const SeqId seq = std::get<Opened>(out.items().back()).seq;
  core.on(Apply{{}, ReserveKv{seq, 8}}, 0, out);
  StepPlan plan;
  plan.ticket = {1, 1};
  plan.rows.emplace_back().seq = seq;
  plan.rows[0].n_tokens = 8;
  plan.rows[0].source = FeedSource::host(0);
  plan.tokens.assign(8, 7);
  core.on(Launch{{}, Shared<StepPlan>::of(plan), true}, 0, out);
  StepResult r;
  r.ticket = plan.ticket;
  r.rows.resize(1);
  core.on(Completed{{}, 0, Shared<StepResult>::of(r)}, 0, out);
  core.on(Apply{{}, Commit{seq, 0, 8}}, 0, out);
  ASSERT_EQ(core.check(), "");
  core.on(Apply{{}, SaveSequenceState{seq}}, 0, out);
  EXPECT_NE(core.check().find("R3"), std::string::npos);
}

}  // namespace
}  // namespace troupe::actors
