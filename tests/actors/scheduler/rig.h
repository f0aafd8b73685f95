// A scheduler core on a small model, and what it sent: the router opens what it asks for, and steps settle as the test says.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <vector>

#include "actors/scheduler/core.h"

namespace troupe::actors {

inline ModelInfo model() {
  ModelInfo m;
  m.vocab_size = 100;
  m.context_length = 64;
  m.block_size = 4;
  m.kv_blocks = 64;
  m.n_slots = 8;
  m.max_depth = 4;
  m.max_rows = 8;
  m.max_step_tokens = 32;
  m.max_logits_rows = 2;
  m.supports_device_token_feed = true;
  m.eos_ids = {1};
  return m;
}

class SchedulerTest : public testing::Test {
 protected:
  void make(SchedulerConfig config, ModelInfo info = model()) { core.emplace(config, info); }
  template <class M>
  void send(const M& m, TimeNs now = 1) {
    core->on(m, now, out);
    core->deliver(out);
    EXPECT_EQ(core->check(), "");
    out.drain([&](auto&& x) {
      using T = std::decay_t<decltype(x)>;
      if constexpr (std::is_same_v<T, Open>) {
        Opened o;
        o.request = x.request;
        o.seq = {1, x.request.client};
        o.cached_len = cached_len;
        o.facts = facts;
        opened.push_back(o);
      } else if constexpr (std::is_same_v<T, Launch>) {
        plans.push_back(x.plan);
      } else if constexpr (std::is_same_v<T, Sample>) {
        samples.push_back(x.batch);
      } else if constexpr (std::is_same_v<T, Deliver>) {
        for (const TokenEvent& e : x.batch->events) tokens[e.request.client].push_back(e.id);
        for (const TokenEvent& e : x.batch->events) logprobs[e.request.client].push_back(e.logprob);
        for (const Finish& f : x.batch->finishes) ends[f.request.client] = f.reason;
      } else if constexpr (std::is_same_v<T, Apply>) {
        applied.push_back(x.effect);
      } else if constexpr (std::is_same_v<T, SetTimer>) {
        timer = x.at;
      }
    });
  }
  void admit(Request q) {
    send(Admit{{}, {q.client, q.client}, Shared<Request>::of(q), 5});
    while (!opened.empty()) {
      const Opened o = opened.front();
      opened.erase(opened.begin());
      send(o);
    }
  }
  static Request request(std::uint64_t client, std::uint32_t prompt, std::uint32_t max_tokens) {
    Request q;
    q.client = client;
    q.prompt.assign(prompt, 9);
    q.stop.max_tokens = max_tokens;
    return q;
  }
  void accept() { send(Accepted{{}, plans.back()->ticket, {}, facts}); }
  // Settles step `step`: every row that produces gives `id`.
  void settle(std::uint64_t step, Token id, Token fed_input = 0) {
    for (const auto& p : plans) {
      if (p->ticket.step != step) continue;
      StepResult r;
      r.ticket = p->ticket;
      for (const Row& row : p->rows) {
        r.rows.push_back({row.source.is_feed() ? fed_input : 9, id, CellStatus::ok, p->ticket.tag()});
        if (row.readback == RowReadback::logits) ++r.logits.n_rows;
      }
      for (const RowSample& s : p->samples) {
        if (s.logprobs_row == RowSample::kNone) continue;
        r.logprobs.push_back({-0.5f * static_cast<float>(s.row + 1), static_cast<std::uint32_t>(r.best.size()), s.n_best});
        r.best.resize(r.best.size() + s.n_best, {id, -0.25f});
      }
      send(Settled{{}, Shared<StepResult>::of(r), facts});
      return;
    }
    FAIL() << "no such step";
  }

  std::optional<SchedulerCore> core;
  SchedulerOutbox out;
  DeviceFacts facts = [] {
    DeviceFacts f;
    f.total_blocks = f.free_blocks = 64;
    f.total_slots = f.free_slots = 8;
    return f;
  }();
  std::vector<Opened> opened;
  std::vector<Shared<StepPlan>> plans;
  std::vector<Shared<SampleBatch>> samples;
  std::vector<Effect> applied;
  std::map<std::uint64_t, std::vector<Token>> tokens;
  std::map<std::uint64_t, std::vector<float>> logprobs;
  std::map<std::uint64_t, FinishReason> ends;
  TimeNs timer = 0;
  std::uint32_t cached_len = 0;  // what the router finds of the next request
};

}  // namespace troupe::actors
