// A router core on a model of 8 blocks of 4 positions, and what it answered last.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <utility>
#include <vector>

#include "actors/router/core.h"

namespace troupe::actors {

inline ModelInfo small_model() {
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
  m.max_loras = 2;
  return m;
}

// A router with a ring, and what it answered last.
class RouterTest : public testing::Test {
 protected:
  explicit RouterTest(const ModelInfo& model = small_model()) : core(RouterConfig{1, 2}, model) {
    RingReady ring;
    for (std::uint32_t i = 0; i < 3; ++i) ring.slots.push_back({i, 0, 0, 0, 0, 0});
    send(ring);
  }
  template <class M>
  void send(const M& m) {
    core.on(m, 0, out);
    EXPECT_EQ(core.check(), "");
    out.drain([&](auto&& x) {
      using T = std::decay_t<decltype(x)>;
      if constexpr (std::is_same_v<T, Opened>)
        opened = x;
      else if constexpr (std::is_same_v<T, Accepted>)
        accepted = x;
      else if constexpr (std::is_same_v<T, Settled>)
        settled.push_back(x);
      else if constexpr (std::is_same_v<T, Applied>)
        applied = x;
      else if constexpr (std::is_same_v<T, Enqueue>)
        enqueued.push_back(x.step);
      else if constexpr (std::is_same_v<T, ChangeTable>)
        change = x;
      else if constexpr (std::is_same_v<T, LoraReply>)
        lora = x;
      else if constexpr (std::is_same_v<T, TornDown>)
        torn_down = x;
    });
  }
  SeqId open(std::uint64_t client = 1, AdapterRef adapter = {}) {
    send(Open{{}, {client, client}, 4, adapter, {}, {}});
    return opened->seq;
  }
  // Asks for a change of the adapter table; `change` is what the stream actor was told, `lora` the answer.
  void lora_change(AdapterRef show, AdapterRef hide, bool withdraw = false) {
    change.reset(), lora.reset();
    send(Lora{{}, {}, show, hide, withdraw});
  }
  void show(AdapterRef adapter) {
    lora_change(adapter, {});
    send(TableChanged{});
  }
  static Row host_row(SeqId seq, std::uint32_t position, std::uint32_t n = 1, AdapterRef adapter = {}) {
    Row r;
    r.adapter = adapter;
    r.seq = seq;
    r.position = position;
    r.n_tokens = n;
    r.source = FeedSource::host(0);
    return r;
  }
  static Row fed_row(SeqId seq, std::uint32_t position, std::uint64_t step, std::uint32_t row) {
    Row r = host_row(seq, position);
    r.source = FeedSource::feed({1, step}, row);
    return r;
  }
  ErrorCode launch(std::uint64_t step, std::vector<Row> rows, std::vector<Effect> effects = {}, bool await = true) {
    StepPlan plan;
    plan.ticket = {1, step};
    plan.rows = std::move(rows);
    plan.effects = std::move(effects);
    plan.tokens.assign(16, 7);
    send(Launch{{}, Shared<StepPlan>::of(plan), await});
    return accepted->error.code;
  }
  ErrorCode apply(Effect e) {
    applied.reset();
    send(Apply{{}, e});
    return applied ? applied->error.code : ErrorCode::none;
  }
  void complete(std::uint64_t step, std::uint32_t n_logits = 0) {
    for (const auto& e : enqueued) {
      if (e->ticket.step != step) continue;
      StepResult r;
      r.ticket = e->ticket;
      r.rows.resize(e->rows.size());
      r.logits.n_rows = n_logits;
      send(Completed{{}, e->slot.slot, Shared<StepResult>::of(r)});
    }
  }

  RouterCore core;
  RouterOutbox out;
  std::optional<Opened> opened;
  std::optional<Accepted> accepted;
  std::vector<Settled> settled;
  std::optional<Applied> applied;
  std::vector<Shared<LaunchedStep>> enqueued;
  std::optional<LoraReply> lora;
  std::optional<ChangeTable> change;
  std::optional<TornDown> torn_down;
};

class PrefixTest : public RouterTest {
 protected:
  using RouterTest::RouterTest;
  SeqId open_with(std::uint64_t client, std::vector<Token> prompt, AdapterRef adapter = {}) {
    Request q;
    q.prompt = std::move(prompt);
    send(Open{{}, {client, client}, static_cast<std::uint32_t>(q.prompt.size()), adapter, Shared<Request>::of(q), {}});
    return opened->seq;
  }
  const std::vector<Token> prompt{1, 2, 3, 4, 5, 6, 7, 8, 9};
};

}  // namespace troupe::actors
