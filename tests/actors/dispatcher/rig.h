// A dispatcher core with several replicas, and what it sends.
#pragma once

#include <gtest/gtest.h>

#include <utility>
#include <variant>
#include <vector>

#include "actors/dispatcher/core.h"

namespace troupe::actors::test {

using Sent = std::vector<DispatcherOutbox::Item>;

template <class M>
std::vector<M> all(const Sent& sent) {
  std::vector<M> out;
  for (const auto& item : sent)
    if (const auto* m = std::get_if<M>(&item)) out.push_back(*m);
  return out;
}
template <class M>
M one(const Sent& sent) {
  const auto found = all<M>(sent);
  EXPECT_EQ(found.size(), 1u);
  return found.empty() ? M{} : found.front();
}

struct Rig {
  explicit Rig(std::uint32_t n, DispatcherConfig config = {}, std::uint32_t max_loras = 0) : core(make(n, config), model(max_loras)) {
    for (std::uint32_t i = 0; i < n; ++i) (void)on(ReplicaUp{{}, {i, 1}, "x"});
  }
  static ModelInfo model(std::uint32_t max_loras) {
    ModelInfo m;
    m.vocab_size = 1000;
    m.context_length = 4096;
    m.block_size = 16;
    m.kv_blocks = 1024;
    m.n_slots = 64;
    m.max_loras = max_loras;
    return m;
  }
  static DispatcherConfig make(std::uint32_t n, DispatcherConfig c) {
    for (std::uint32_t i = 0; i < n; ++i) c.replicas.push_back({"host:" + std::to_string(i)});
    c.supervision.max_restarts = 3;
    c.supervision.restart_window = 100'000;
    c.supervision.backoff = 100;
    c.supervision.max_backoff = 400;
    c.supervision.start_timeout = 5000;
    c.supervision.report_interval = 50;
    c.supervision.report_timeout = 200;
    c.supervision.progress_timeout = 1000;
    return c;
  }
  template <class M>
  Sent on(const M& m) {
    core.on(m, now, out);
    Sent sent = out.items();
    out.clear();
    EXPECT_EQ(core.check(), "");
    return sent;
  }
  Sent submit(std::uint64_t client, std::uint32_t max_tokens = 10, Optional<TimeNs> deadline = {}, std::string adapter = "") {
    Request r;
    r.client = client;
    r.prompt = {1, 2, 3};
    r.stop.max_tokens = max_tokens;
    r.deadline = deadline;
    r.adapter = std::move(adapter);
    return on(Submit{{}, Shared<Request>::of(r), 99});
  }
  // The replica's own word, and delivery's.
  Sent end(const Admit& admit) {
    Sent sent = on(Ended{{}, {{admit.id, admit.attempt}}, admit.replica});
    for (auto& item : on(Delivered{{}, {{admit.id, admit.attempt}}})) sent.push_back(std::move(item));
    return sent;
  }
  // Time passes, with Ticks when the core has asked for some.
  Sent until(TimeNs at) {
    Sent sent;
    for (; now < at; now += 10)
      for (auto& item : on(Tick{})) sent.push_back(std::move(item));
    return sent;
  }
  ReplicaState state(std::uint32_t index) const { return core.replicas().at(index).state; }

  DispatcherCore core;
  DispatcherOutbox out;
  TimeNs now = 5'000'000'000'000;  // a machine's clock has run for a while
};

}  // namespace troupe::actors::test
