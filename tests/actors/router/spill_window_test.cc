// Saving and bringing back a sequence of a windowed model, and what a save that frees too early leads to.
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "tests/actors/router/spill_rig.h"

namespace troupe::actors {
namespace {

// Of a model with a window only the blocks that are still read are saved, and only those come back.
TEST(RouterSpillWindow, WhatLiesBehindTheWindowIsNotSaved) {
  ModelInfo m = spill_model();
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
  RouterCore core(config, spill_model());
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
