// When a preempted request is saved, what becomes of it, and that its file is never forgotten.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <vector>

#include "actors/scheduler/core.h"

namespace troupe::actors {
namespace {

ModelInfo model() {
  ModelInfo m;
  m.vocab_size = 100;
  m.context_length = 64;
  m.block_size = 4;
  m.kv_blocks = 8;
  m.n_slots = 8;
  m.max_depth = 4;
  m.max_rows = 8;
  m.max_step_tokens = 32;
  m.max_logits_rows = 2;
  m.supports_device_token_feed = true;
  m.eos_ids = {1};
  return m;
}

// Two requests of which the newer one has to give up its blocks.
class SchedulerSpill : public testing::Test {
 protected:
  template <class M>
  void send(const M& m, TimeNs now = 1) {
    core->on(m, now, out);
    core->deliver(out);
    EXPECT_EQ(core->check(), "");
    out.drain([&](auto&& x) {
      using T = std::decay_t<decltype(x)>;
      if constexpr (std::is_same_v<T, Open>)
        opens.push_back(x);
      else if constexpr (std::is_same_v<T, Launch>)
        plans.push_back(x.plan);
      else if constexpr (std::is_same_v<T, Apply>)
        applied.push_back(x.effect);
      else if constexpr (std::is_same_v<T, DropState>)
        drops.push_back(x.seq);
      else if constexpr (std::is_same_v<T, Drained>)
        drained = true;
      else if constexpr (std::is_same_v<T, Deliver>)
        for (const Finish& f : x.batch->finishes) ends[f.request.client] = f.reason;
    });
  }
  void make(std::uint32_t places = 1, std::uint32_t min_blocks = 1) {
    SchedulerConfig config;
    config.depth = 1;
    config.spill_places = places;
    config.spill_min_blocks = min_blocks;
    core.emplace(config, model());
  }
  void admit(std::uint64_t client, std::uint32_t prompt = 12) {
    Request q;
    q.client = client;
    q.prompt.assign(prompt, 9);
    q.stop.max_tokens = 20;
    send(Admit{{}, {client, client}, Shared<Request>::of(q), 5});
    answer_open();
  }
  void answer_open(std::uint32_t cached = 0, bool restored = false, ErrorCode error = ErrorCode::none) {
    const Open o = opens.back();
    Opened m;
    m.request = o.request;
    if (error == ErrorCode::none) m.seq = {1, ++next_seq};
    m.error.code = error;
    m.error.phase = DeviceError::Phase::effect;
    m.cached_len = cached;
    m.restore = o.restore;
    m.restored = restored;
    m.facts = facts;
    send(m);
  }
  void accept() { send(Accepted{{}, plans.back()->ticket, {}, facts}); }
  void refuse(std::uint32_t row) {
    send(Accepted{{}, plans.back()->ticket, {DeviceError::Phase::launch, ErrorCode::kv_exhausted, row, 1, "full"}, facts});
  }
  void settle() {
    StepResult r;
    r.ticket = plans.back()->ticket;
    for (std::size_t i = 0; i < plans.back()->rows.size(); ++i) r.rows.push_back({9, 5, CellStatus::ok, r.ticket.tag()});
    send(Settled{{}, Shared<StepResult>::of(r), facts});
  }
  void saved(ErrorCode code = ErrorCode::none) {
    send(Saved{{}, {2, 2}, save_seq(), 12, {DeviceError::Phase::effect, code, 0, 0, "no"}, facts});
  }
  // The last SaveSequenceState that was sent, alone or with a plan.
  SeqId save_seq() const {
    SeqId seq;
    for (const Effect& e : applied)
      if (const auto* s = std::get_if<SaveSequenceState>(&e)) seq = s->seq;
    for (const auto& p : plans)
      for (const Effect& e : p->effects)
        if (const auto* s = std::get_if<SaveSequenceState>(&e)) seq = s->seq;
    return seq;
  }
  // Client 1 runs, client 2 was preempted with 12 settled positions.
  void preempt(std::uint32_t prompt = 12) {
    admit(1, 12);
    accept();
    admit(2, prompt);
    settle();
    accept();
    settle();
    facts.free_blocks = 0;
    refuse(0);
    for (std::size_t n = applied.size(); n > 0; --n) send(Applied{{}, {}, {}, facts});
    answered = applied.size();
  }
  void answer_applied() {
    for (; answered < applied.size(); ++answered) send(Applied{{}, {}, {}, facts});
  }

  std::optional<SchedulerCore> core;
  SchedulerOutbox out;
  DeviceFacts facts = [] {
    DeviceFacts f;
    f.total_blocks = f.free_blocks = 8;
    f.total_slots = f.free_slots = 8;
    return f;
  }();
  std::vector<Open> opens;
  std::vector<Shared<StepPlan>> plans;
  std::vector<Effect> applied;
  std::vector<SeqId> drops;
  std::map<std::uint64_t, FinishReason> ends;
  bool drained = false;
  std::uint64_t next_seq = 0;
  std::size_t answered = 0;  // of applied
};

TEST_F(SchedulerSpill, APreemptedRequestIsSavedAndOpenedOnlyAfterwards) {
  make();
  preempt();
  EXPECT_EQ(save_seq(), (SeqId{1, 2}));
  EXPECT_EQ(core->stats().spills, 1u);
  accept();
  facts.free_blocks = 8;
  settle();
  EXPECT_EQ(opens.size(), 2u) << "its save was not answered";
  saved();
  ASSERT_EQ(opens.size(), 3u);
  EXPECT_EQ(opens[2].restore, (SeqId{1, 2}));
  EXPECT_EQ(opens[2].restore_len, 12u);
  EXPECT_EQ(opens[2].n_tokens, 13u);
  accept();
  answer_open(12, true);
  settle();
  EXPECT_EQ(core->stats().restores, 1u);
  EXPECT_EQ(core->stats().resumes, 1u);
  bool goes_on = false;
  for (const Row& row : plans.back()->rows) goes_on = goes_on || (row.seq == SeqId{1, 3} && row.position == 12 && row.n_tokens == 1);
  EXPECT_TRUE(goes_on);
  EXPECT_TRUE(drops.empty());
}

TEST_F(SchedulerSpill, WithoutPlacesOrWithTooLittleItIsComputedAgain) {
  make(0);
  preempt();
  EXPECT_EQ(save_seq(), SeqId{});
  EXPECT_EQ(core->stats().preemptions, 1u);
  make(1, 3);
  opens.clear(), plans.clear(), applied.clear();
  next_seq = 0;
  facts.free_blocks = 8;
  preempt();
  EXPECT_EQ(save_seq(), SeqId{});
  EXPECT_EQ(core->stats().preemptions, 1u);
  EXPECT_EQ(core->stats().spills, 0u);
}

TEST_F(SchedulerSpill, ASaveThatFailsIsComputedAgain) {
  make();
  preempt();
  accept();
  facts.free_blocks = 8;
  saved(ErrorCode::io_failed);
  settle();
  ASSERT_EQ(opens.size(), 3u);
  EXPECT_EQ(opens[2].restore, SeqId{});
  EXPECT_EQ(opens[2].n_tokens, 13u);
  EXPECT_EQ(core->stats().spill_failures, 1u);
  EXPECT_TRUE(drops.empty()) << "there is no file";
}

TEST_F(SchedulerSpill, WhatCannotBeReadBackIsComputedAgain) {
  make();
  preempt();
  accept();
  facts.free_blocks = 8;
  saved();
  settle();
  accept();
  answer_open(0, false);
  settle();
  EXPECT_EQ(core->stats().restore_failures, 1u);
  bool from_zero = false;
  for (const Row& row : plans.back()->rows) from_zero = from_zero || (row.seq == SeqId{1, 3} && row.position == 0 && row.n_tokens == 13);
  EXPECT_TRUE(from_zero);
}

TEST_F(SchedulerSpill, ARestoreThatDoesNotFitWaitsForWhatMoves) {
  make();
  preempt();
  accept();
  facts.free_blocks = 8;
  saved();
  settle();
  ASSERT_EQ(opens.size(), 3u);
  answer_open(0, false, ErrorCode::kv_exhausted);
  EXPECT_EQ(opens.size(), 3u) << "not again at once";
  EXPECT_EQ(core->waiting(), 1u);
  accept();
  settle();
  ASSERT_EQ(opens.size(), 4u);
  EXPECT_EQ(opens[3].restore, (SeqId{1, 2}));
  EXPECT_EQ(core->stats().restore_failures, 0u);
}

TEST_F(SchedulerSpill, ARestoreThatNothingCanHelpIsComputedAgain) {
  make();
  preempt();
  accept();
  saved();
  send(CancelRequest{{}, {1, 1}});
  settle();
  answer_applied();
  ASSERT_EQ(opens.size(), 3u);
  EXPECT_EQ(opens[2].restore, (SeqId{1, 2}));
  answer_open(0, false, ErrorCode::kv_exhausted);
  ASSERT_EQ(opens.size(), 4u);
  EXPECT_EQ(opens[3].restore, SeqId{});
  EXPECT_EQ(drops, (std::vector<SeqId>{{1, 2}}));
}

TEST_F(SchedulerSpill, ARequestThatEndsWhileItIsSavedHasItsFileDroppedThen) {
  make();
  preempt();
  accept();
  send(CancelRequest{{}, {2, 2}});
  EXPECT_EQ(ends[2], FinishReason::cancelled);
  EXPECT_TRUE(drops.empty());
  saved();
  EXPECT_EQ(drops, (std::vector<SeqId>{{1, 2}}));
  EXPECT_EQ(core->stats().ended_saving, 1u);
}

TEST_F(SchedulerSpill, ASavedRequestThatEndsHasItsFileDropped) {
  make();
  preempt();
  accept();
  saved();
  EXPECT_TRUE(drops.empty());
  send(CancelRequest{{}, {2, 2}});
  EXPECT_EQ(drops, (std::vector<SeqId>{{1, 2}}));
  EXPECT_EQ(core->stats().spills_dropped, 1u);
}

TEST_F(SchedulerSpill, ARequestThatEndsWhileItIsBroughtBackIsReleased) {
  make();
  preempt();
  accept();
  facts.free_blocks = 8;
  saved();
  settle();
  ASSERT_EQ(opens.size(), 3u);
  accept();
  send(CancelRequest{{}, {2, 2}});
  EXPECT_TRUE(drops.empty()) << "reading it removes it";
  answer_open(12, true);
  settle();
  bool released = false;
  for (const auto& p : plans)
    for (const Effect& e : p->effects)
      if (const auto* r = std::get_if<ReleaseSeq>(&e)) released = released || r->seq == SeqId{1, 3};
  EXPECT_TRUE(released);
  EXPECT_EQ(core->stats().ended_restoring, 1u);
}

TEST_F(SchedulerSpill, ARefusedOpenOfWhatEndedLeavesItsFileToDrop) {
  make();
  preempt();
  accept();
  facts.free_blocks = 8;
  saved();
  settle();
  send(CancelRequest{{}, {2, 2}});
  answer_open(0, false, ErrorCode::slot_exhausted);
  EXPECT_EQ(drops, (std::vector<SeqId>{{1, 2}}));
}

TEST_F(SchedulerSpill, ARefusedOpenThatEndsEverythingLeavesItsFileToDrop) {
  make();
  preempt();
  accept();
  facts.free_blocks = 8;
  saved();
  settle();
  answer_open(0, false, ErrorCode::device_lost);
  EXPECT_EQ(ends[2], FinishReason::error);
  EXPECT_EQ(drops, (std::vector<SeqId>{{1, 2}}));
}

TEST_F(SchedulerSpill, AnEndOfEverythingDropsAllFiles) {
  make();
  preempt();
  accept();
  saved();
  send(Halt{{}, {ErrorCode::closed, "stop"}});
  EXPECT_EQ(drops, (std::vector<SeqId>{{1, 2}}));
  EXPECT_EQ(ends[2], FinishReason::error);
}

TEST_F(SchedulerSpill, ADrainWaitsForSaves) {
  make();
  preempt();
  accept();
  send(Drain{});
  send(CancelRequest{{}, {2, 2}});
  send(CancelRequest{{}, {1, 1}});
  settle();
  answer_applied();
  EXPECT_FALSE(drained);
  saved();
  EXPECT_TRUE(drained);
}

}  // namespace
}  // namespace troupe::actors
