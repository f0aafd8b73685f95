#include "tests/sim/world.h"

#include <algorithm>

namespace troupe::sim {

namespace {

actors::SchedulerConfig scheduler_config(const WorldOptions& o) {
  actors::SchedulerConfig c;
  c.depth = o.depth;
  c.max_batch = o.max_batch;
  c.step_tokens = o.step_tokens;
  c.fault = o.fault;
  return c;
}

actors::RouterConfig router_config(const WorldOptions& o) {
  actors::RouterConfig c;
  c.depth = o.depth;
  return c;
}

}  // namespace

World::World(const WorldOptions& o)
    : options_(o),
      random_(o.seed),
      model_(sim_model(o.device)),
      device_(o.device, o.depth + 1),
      dispatcher_({}, model_),
      scheduler_(scheduler_config(o), model_),
      router_(router_config(o), model_),
      device_core_(o.depth + 1, TimeNs{60} * 1'000'000'000),
      sampler_(o.device.vocab) {
  router_.on(RingReady{{}, device_.ring()}, now_, router_out_);
}

void World::send(Actor from, Actor to, Message m) {
  for (Queue& q : queues_)
    if (q.from == from && q.to == to) return q.messages.emplace_back(order_++, std::move(m)), void();
  queues_.push_back({from, to, {}});
  queues_.back().messages.emplace_back(order_++, std::move(m));
}

void World::broken(std::string what) {
  if (violation_.empty()) violation_ = std::move(what) + " (after message " + std::to_string(messages_) + ", seed " + std::to_string(options_.seed) + ")";
}

// Where each message of an outbox goes.
template <class M> void World::route(Actor self, M m) {
  if constexpr (std::is_same_v<M, SetTimer>) timers_[static_cast<int>(self)] = m.at;
  else if constexpr (std::is_same_v<M, ReadSlot>) send(Actor::device, Actor::router, Completed{{}, m.ring_slot, Shared<StepResult>::of(device_.read(m))});
  else if constexpr (std::is_same_v<M, SubmitReply>) send(self, Actor::edge, m);
  else if constexpr (std::is_same_v<M, CancelReply>) send(self, self == Actor::scheduler ? Actor::dispatcher : Actor::edge, m);
  else if constexpr (std::is_same_v<M, Drained>) send(self, self == Actor::scheduler ? Actor::dispatcher : Actor::edge, m);
  else if constexpr (std::is_same_v<M, Deliver>) send(self, Actor::edge, m);
  else if constexpr (std::is_same_v<M, Admit> || std::is_same_v<M, CancelRequest> || std::is_same_v<M, Drain> || std::is_same_v<M, Opened> ||
                     std::is_same_v<M, Accepted> || std::is_same_v<M, Settled> || std::is_same_v<M, Applied> || std::is_same_v<M, Sampled> ||
                     std::is_same_v<M, Halt>)
    send(self, Actor::scheduler, std::move(m));
  else if constexpr (std::is_same_v<M, Open> || std::is_same_v<M, Launch> || std::is_same_v<M, Apply>) send(self, Actor::router, std::move(m));
  else if constexpr (std::is_same_v<M, Enqueue>) send(self, Actor::stream, std::move(m));
  else if constexpr (std::is_same_v<M, Sample>) send(self, Actor::sampler, std::move(m));
  else if constexpr (std::is_same_v<M, Ended>) send(self, Actor::dispatcher, std::move(m));
  else static_assert(std::is_same_v<M, LoraReply> || std::is_same_v<M, TornDown>);
}

template <class Core, class M, class Out> void World::call(Actor self, Core& core, const M& m, Out& out) {
  if constexpr (requires { core.on(m, now_, out); }) {
    core.on(m, now_, out);
    out.drain([&](auto&& item) { route(self, std::move(item)); });
  } else {
    broken("a message went to an actor that does not take it");
  }
}

// A client id that comes again starts a new stream; nothing may come for the old one after that.
Stream& World::stream_of(const RequestId& id) {
  Stream& s = streams_[id.client];
  if (s.generation < id.generation) {
    if (s.generation != 0 && !s.finish) broken("R5: " + label(id) + " began before the end of its client's last request");
    s = {};
    s.generation = id.generation;
  } else if (s.generation > id.generation) {
    broken("R5: something came for " + label(id) + ", which was over");
  }
  return s;
}

void World::receive(const TokenBatch& batch) {
  for (const TokenEvent& e : batch.events) {
    Stream& s = stream_of(e.request);
    if (s.finish) broken("R5: a token of " + label(e.request) + " after its end");
    if (e.index != s.tokens.size()) broken("R5: token " + std::to_string(e.index) + " of " + label(e.request) + " where " + std::to_string(s.tokens.size()) + " was due");
    s.tokens.push_back(e.id);
    s.logprobs.push_back(e.logprob);
    s.text += batch.text.substr(e.text_begin, e.text_size);
  }
  for (const Finish& f : batch.finishes) {
    Stream& s = stream_of(f.request);
    if (s.finish) broken("R5: a second end of " + label(f.request));
    s.text += batch.text.substr(f.text_begin, f.text_size);
    s.finish = f;
  }
}

void World::deliver(Actor to, const Message& m) {
  ++messages_;
  if (keep_log) log.push_back(std::visit([](const auto& x) { return label(x); }, m));
  std::visit(
      [&](const auto& x) {
        using M = std::decay_t<decltype(x)>;
        switch (to) {
          case Actor::dispatcher: call(to, dispatcher_, x, dispatcher_out_); break;
          case Actor::scheduler: call(to, scheduler_, x, scheduler_out_); break;
          case Actor::router: call(to, router_, x, router_out_); break;
          case Actor::device: call(to, device_core_, x, device_out_); break;
          case Actor::sampler: call(to, sampler_, x, sampler_out_); break;
          case Actor::stream:
            if constexpr (std::is_same_v<M, Enqueue>) {
              device_.enqueue(x);
              const auto n_rows = static_cast<std::uint32_t>(x.step->rows.size());
              send(Actor::stream, Actor::device, Watch{{}, x.step->ticket, x.step->slot.slot, n_rows, x.step->n_logits, {}});
            }
            break;
          case Actor::edge:
            if constexpr (std::is_same_v<M, SubmitReply>) reply_ = x;
            else if constexpr (std::is_same_v<M, CancelReply>) cancels_.push_back(x);
            else if constexpr (std::is_same_v<M, Drained>) drained_ = true;
            else if constexpr (std::is_same_v<M, Deliver>) receive(*x.batch);
            break;
        }
      },
      m);
  if (auto e = router_.check(); !e.empty()) broken(e);
  if (auto e = scheduler_.check(); !e.empty()) broken(e);
}

bool World::step() {
  std::vector<std::size_t> ready;
  for (std::size_t i = 0; i < queues_.size(); ++i)
    if (!queues_[i].messages.empty()) ready.push_back(i);
  const bool device = device_.queued() > 0;
  const bool run_device = device && (ready.empty() || (!options_.in_order && random_() % (ready.size() + 2) == 0));
  now_ += 1000;
  std::optional<TimeNs>& timer = timers_[static_cast<int>(Actor::scheduler)];
  if (timer && (*timer <= now_ || (ready.empty() && !device))) {  // with nothing else to do, time jumps to it
    now_ = std::max(now_, *timer);
    timer.reset();
    deliver(Actor::scheduler, Tick{});
    return true;
  }
  if (run_device) {
    send(Actor::edge, Actor::device, device_.run_head());
    return true;
  }
  if (!ready.empty()) {
    const std::size_t pick = options_.in_order ? *std::min_element(ready.begin(), ready.end(),
                                                                   [&](std::size_t a, std::size_t b) {
                                                                     return queues_[a].messages.front().first < queues_[b].messages.front().first;
                                                                   })
                                               : ready[random_() % ready.size()];
    const Actor to = queues_[pick].to;
    const Message m = std::move(queues_[pick].messages.front().second);
    queues_[pick].messages.pop_front();
    deliver(to, m);
    return true;
  }
  return false;
}

std::uint64_t World::run(std::uint64_t limit) {
  std::uint64_t n = 0;
  while (n < limit && violation_.empty() && step()) ++n;
  if (n == limit) broken("R10: still not done after " + std::to_string(limit) + " steps");
  return n;
}

SubmitReply World::submit(Request request) {
  reply_.reset();
  const std::uint64_t seed = random_();
  send(Actor::edge, Actor::dispatcher, Submit{{}, Shared<Request>::of(std::move(request)), seed});
  while (!reply_ && violation_.empty() && step()) {
  }
  return reply_.value_or(SubmitReply{});
}

void World::cancel(std::uint64_t client) { send(Actor::edge, Actor::dispatcher, Cancel{{}, client}); }
void World::drain() { send(Actor::edge, Actor::dispatcher, Drain{}); }

std::vector<Token> expected_tokens(const Request& q, const ModelInfo& model, const SimDeviceOptions& device) {
  std::uint64_t state = 0;
  std::uint32_t position = 0;
  for (const Token id : q.prompt) state = sim_state(state, position++, id);
  std::vector<Token> out;
  bool closed = false;
  const auto limit = std::min<std::size_t>(q.stop.max_tokens, device.context - q.prompt.size());
  while (out.size() < limit) {
    std::vector<Token> bar;
    if (out.size() < q.stop.min_tokens) {
      if (!q.stop.ignore_eos) bar.insert(bar.end(), model.eos_ids.begin(), model.eos_ids.end());
      bar.insert(bar.end(), q.stop.stop_token_ids.begin(), q.stop.stop_token_ids.end());
    }
    if (closed) bar.insert(bar.end(), {q.think->bar_a, q.think->bar_b});
    Token id = static_cast<Token>(state % device.vocab);
    if (bar.size() > 2) {
      std::vector<float> logits(device.vocab);
      sim_logits(state, device.vocab, logits.data());
      for (const Token b : bar) logits[b] = -1e30f;
      id = static_cast<Token>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    } else {
      id = sim_choice(state, device.vocab, {bar.empty() ? RowMask::kNone : bar[0], bar.size() > 1 ? bar[1] : RowMask::kNone});
    }
    out.push_back(id);
    if (q.think && id == q.think->close) closed = true;
    const bool ends = std::count(q.stop.stop_token_ids.begin(), q.stop.stop_token_ids.end(), id) > 0 ||
                      (!q.stop.ignore_eos && std::count(model.eos_ids.begin(), model.eos_ids.end(), id) > 0);
    if (ends && out.size() > q.stop.min_tokens) break;
    state = sim_state(state, position++, id);
  }
  return out;
}

}  // namespace troupe::sim
