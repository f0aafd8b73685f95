// A router core whose saves and restores a test answers message by message.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <utility>
#include <vector>

#include "actors/router/core.h"

namespace troupe::actors {

inline ModelInfo spill_model() {
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
  // `first_order`: the first place's event that orders its copies behind the compute stream; 0: they go on that.
  explicit RouterSpill(std::uint64_t first_order = 0, const ModelInfo& model = spill_model(), std::uint32_t state_parts = 0)
      : core(RouterConfig{1, 2}, model) {
    RingReady ring;
    for (std::uint32_t i = 0; i < 3; ++i) ring.slots.push_back({i, 0, 0, 0, 0, 0});
    for (std::uint32_t i = 0; i < 2; ++i)
      ring.places.push_back({i, 10 + i, 100 + i, 2, 64, first_order == 0 ? 0 : first_order + i, state_parts});
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
      else if constexpr (std::is_same_v<T, RecordEvent>)
        marks.push_back(x), order += "mark ";
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
  void marked(Error error = {}) { send(EventRecorded{{}, marks.back().mark, marks.back().place, error}); }
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

  RouterCore core;
  RouterOutbox out;
  std::uint64_t next_step = 1;
  std::vector<Opened> opened;
  std::optional<Accepted> accepted;
  std::optional<Applied> applied;
  std::vector<Shared<LaunchedStep>> enqueued;
  std::vector<Saved> saved;
  std::vector<CopyBlocks> copies;
  std::vector<RecordEvent> marks;
  std::vector<StatePiece> writes, reads;
  std::vector<SeqId> drops;
  std::optional<TornDown> torn_down;
  std::string order;
};

}  // namespace troupe::actors
