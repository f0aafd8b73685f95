#include "tests/sim/world.h"

#include <algorithm>
#include <utility>

namespace troupe::sim {

namespace {

constexpr TimeNs kStepTimeout = TimeNs{60} * 1'000'000'000;
constexpr std::size_t kMaxMailbox = 64;  // of one pair of actors (R11)

actors::SchedulerConfig scheduler_config(const WorldOptions& o) {
  actors::SchedulerConfig c;
  c.depth = o.depth;
  c.max_batch = o.max_batch;
  c.step_tokens = o.step_tokens;
  c.spill_places = o.device.spill_places;
  c.spill_min_blocks = o.spill_min_blocks;
  c.fault = o.fault;
  return c;
}

actors::RouterConfig router_config(const WorldOptions& o) {
  actors::RouterConfig c;
  c.depth = o.depth;
  c.prefix_cache = o.prefix_cache;
  c.fault = o.router_fault;
  return c;
}

actors::DispatcherConfig dispatcher_config(const WorldOptions& o) {
  actors::DispatcherConfig c;
  c.max_live = o.max_live;
  return c;
}

actors::LoraConfig lora_config(const WorldOptions& o) {
  actors::LoraConfig c;
  c.max_wait = 300'000;  // a turn of the world takes 1000
  c.lease = 100'000;
  c.max_commands = 4;
  c.policy = o.lora_policy;
  c.fault = o.lora_fault;
  return c;
}

}  // namespace

actors::Sender World::sender_of(Actor actor) {
  constexpr actors::Sender kSenders[] = {actors::Sender::runtime, actors::Sender::dispatcher, actors::Sender::scheduler, actors::Sender::router,
                                         actors::Sender::stream,  actors::Sender::device,     actors::Sender::sampler,    actors::Sender::spill,
                                         actors::Sender::lora,    actors::Sender::loader};
  return kSenders[static_cast<int>(actor)];
}

World::World(const WorldOptions& o)
    : options_(o),
      ring_slots_(o.ring_slots != 0 ? o.ring_slots : o.depth + 1),
      random_(o.seed),
      model_(sim_model(o.device)),
      device_(o.device, ring_slots_),
      witness_(model_, ring_slots_),
      dispatcher_(dispatcher_config(o), model_),
      scheduler_(scheduler_config(o), model_),
      router_(router_config(o), model_),
      device_core_(ring_slots_, kStepTimeout, o.device.spill_places),
      sampler_(o.device.vocab),
      files_(std::make_shared<SimFiles>(o.files)),
      spill_(std::make_unique<actors::SpillCore>(actors::SpillConfig{o.spill_limit, o.spill_fault}, model_, files_)),
      lora_(lora_config(o), model_) {
  if (o.record)
    recorder_.begin({dispatcher_config(o),
                     scheduler_config(o),
                     router_config(o),
                     {ring_slots_, kStepTimeout, o.device.spill_places},
                     lora_config(o),
                     {o.spill_limit, o.spill_fault},
                     model_});
  RingReady ready{{}, device_.ring(), device_.places()};
  sent(Actor::device, Actor::router, ready);
  received(Actor::router, ready);
  router_.on(ready, now_, router_out_);
}

std::vector<std::uint8_t> World::recording() { return recorder_.bytes(); }

template <class M>
void World::sent(Actor from, Actor to, M& m) {
  recorder_.sent(sender_of(from), sender_of(to), now_, m);
}

template <class M>
void World::received(Actor to, const M& m) {
  recorder_.received(sender_of(to), now_, m);
}

void World::send(Actor from, Actor to, Message m) {
  std::visit([&](auto& x) { sent(from, to, x); }, m);
  Queue* queue = nullptr;
  for (Queue& q : queues_)
    if (q.from == from && q.to == to) queue = &q;
  if (queue == nullptr) queue = &queues_.emplace_back(Queue{from, to, {}});
  queue->messages.emplace_back(order_++, std::move(m));
  if (queue->messages.size() > kMaxMailbox && from != Actor::edge)
    broken("R11: " + std::to_string(queue->messages.size()) + " messages wait for one actor");
}

void World::broken(std::string what) {
  if (violation_.empty())
    violation_ = std::move(what) + " (after message " + std::to_string(messages_) + ", seed " + std::to_string(options_.seed) + ")";
}

// Where each message of an outbox goes.
template <class M>
void World::route(Actor self, M m) {
  if constexpr (std::is_same_v<M, Enqueue>) witness_.enqueue(*m.step);
  if constexpr (std::is_same_v<M, Opened>) witness_.opened(m);
  if constexpr (std::is_same_v<M, CopyBlocks>) witness_.copy(m);
  if constexpr (std::is_same_v<M, Saved>) witness_.saved(m);
  if constexpr (std::is_same_v<M, Admit>) {
    const auto it = expected_.find(m.request.get());
    if (self == Actor::dispatcher) {
      if (m.id.generation != accepted_.size() + 1) broken("R5: generations are not counted one by one");
      accepted_.push_back({m.id, it == expected_.end() ? nullptr : it->second, 0, false, commands_.size()});
    } else {
      bound(m);
    }
  }
  if constexpr (std::is_same_v<M, ChangeTable>) witness_.change(m);
  if constexpr (std::is_same_v<M, Deliver>) {
    for (const TokenEvent& e : m.batch->events) {
      Pace& pace = paces_[e.request.client];
      if (pace.id != e.request) pace = {e.request, settled_, 0};
      pace.longest = std::max(pace.longest, settled_ - pace.last);
      pace.last = settled_;
    }
  }
  if constexpr (std::is_same_v<M, LoraSubmit>) commands_.push_back({m, {}});
  if constexpr (std::is_same_v<M, LoraAnswer>) {
    if (self == Actor::lora) {
      for (Commanded& c : commands_) {
        if (c.submit.id != m.id) continue;
        if (c.answer) broken("R9: a second answer to " + label(c.submit));
        c.answer = m;
      }
    }
  }
  if constexpr (std::is_same_v<M, LoadAdapter>) loaded_[{m.slot, 0}] = m.path;
  if constexpr (std::is_same_v<M, Lora>) {
    if (m.show.slot != 0 && !m.withdraw) loaded_[m.show] = loaded_[{m.show.slot, 0}];
  }
  if constexpr (std::is_same_v<M, Accepted>) {
    if (m.error.code == ErrorCode::none)
      refusals_ = 0;
    else if (++refusals_ > 16 + 2 * options_.max_batch)
      broken("R10: launches are refused in a loop");
  }
  if constexpr (std::is_same_v<M, Settled> || std::is_same_v<M, Applied> || std::is_same_v<M, Opened> || std::is_same_v<M, Saved>)
    refusals_ = 0;

  if constexpr (std::is_same_v<M, SetTimer>) {
    sent(self, self, m);
    timers_[static_cast<int>(self)] = m.at;
  } else if constexpr (std::is_same_v<M, ReadSlot>)
    send(Actor::device, Actor::router, Completed{{}, m.ring_slot, Shared<StepResult>::of(device_.read(m))});
  else if constexpr (std::is_same_v<M, SubmitReply>)
    send(self, Actor::edge, m);
  else if constexpr (std::is_same_v<M, CancelReply>)
    send(self, self == Actor::scheduler ? Actor::dispatcher : Actor::edge, m);
  else if constexpr (std::is_same_v<M, Drained>)
    send(self, self == Actor::scheduler ? Actor::dispatcher : Actor::edge, m);
  else if constexpr (std::is_same_v<M, Deliver>)
    send(self, Actor::edge, m);
  else if constexpr (std::is_same_v<M, Admit> || std::is_same_v<M, CancelRequest> || std::is_same_v<M, Drain>)
    send(self, self == Actor::dispatcher && model_.max_loras > 0 ? Actor::lora : Actor::scheduler, std::move(m));
  else if constexpr (std::is_same_v<M, LoraAnswer>)
    send(self, self == Actor::lora ? Actor::dispatcher : Actor::edge, std::move(m));
  else if constexpr (std::is_same_v<M, LoraSubmit> || std::is_same_v<M, LoraReply>)
    send(self, Actor::lora, std::move(m));
  else if constexpr (std::is_same_v<M, LoadAdapter>)
    send(self, Actor::loader, std::move(m));
  else if constexpr (std::is_same_v<M, Lora>)
    send(self, Actor::router, std::move(m));
  else if constexpr (std::is_same_v<M, ChangeTable>)
    send(self, Actor::stream, std::move(m));
  else if constexpr (std::is_same_v<M, LoraHold> || std::is_same_v<M, LoraResume> || std::is_same_v<M, Opened> || std::is_same_v<M, Accepted> || std::is_same_v<M, Settled> || std::is_same_v<M, Applied> ||
                     std::is_same_v<M, Sampled> || std::is_same_v<M, Halt> || std::is_same_v<M, Saved>)
    send(self, Actor::scheduler, std::move(m));
  else if constexpr (std::is_same_v<M, Open> || std::is_same_v<M, Launch> || std::is_same_v<M, Apply> || std::is_same_v<M, CopyDone> ||
                     std::is_same_v<M, StateWritten> || std::is_same_v<M, StateRead>)
    send(self, Actor::router, std::move(m));
  else if constexpr (std::is_same_v<M, WriteState> || std::is_same_v<M, ReadState> || std::is_same_v<M, DropState>)
    send(self, Actor::spill, std::move(m));
  else if constexpr (std::is_same_v<M, Enqueue> || std::is_same_v<M, CopyBlocks>)
    send(self, Actor::stream, std::move(m));
  else if constexpr (std::is_same_v<M, Sample>)
    send(self, Actor::sampler, std::move(m));
  else if constexpr (std::is_same_v<M, Ended>)
    send(self, self == Actor::dispatcher ? Actor::lora : Actor::dispatcher, std::move(m));
  else
    static_assert(std::is_same_v<M, TornDown>);
}

// What the Witness sees before the router does.
template <class M>
void World::observe(const M& m) {
  if constexpr (std::is_same_v<M, Launch>)
    witness_.launch(m);
  else if constexpr (std::is_same_v<M, Apply>)
    witness_.apply(m.effect);
  else if constexpr (std::is_same_v<M, Completed>)
    witness_.completed(m);
  else if constexpr (std::is_same_v<M, CopyDone>)
    witness_.copy_done(m);
}

template <class Core, class M, class Out>
void World::call(Actor self, Core& core, const M& m, Out& out) {
  if constexpr (requires { core.on(m, now_, out); }) {
    core.on(m, now_, out);
    out.drain([&](auto&& item) { route(self, std::move(item)); });
    if constexpr (requires { core.deliver(out); }) {
      core.deliver(out);
      out.drain([&](auto&& item) { route(self, std::move(item)); });
    }
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

World::Accepting* World::accepted(const RequestId& id) {
  if (id.generation == 0 || id.generation > accepted_.size() || accepted_[id.generation - 1].id != id) {
    broken("R5: something came for " + label(id) + ", which was never accepted");
    return nullptr;
  }
  return &accepted_[id.generation - 1];
}

void World::receive(const TokenBatch& batch) {
  for (const TokenEvent& e : batch.events) {
    Stream& s = stream_of(e.request);
    if (s.finish) broken("R5: a token of " + label(e.request) + " after its end");
    if (e.index != s.tokens.size())
      broken("R5: token " + std::to_string(e.index) + " of " + label(e.request) + " where " + std::to_string(s.tokens.size()) + " was due");
    s.tokens.push_back(e.id);
    s.logprobs.push_back(e.logprob);
    s.text += batch.text.substr(e.text_begin, e.text_size);
    Accepting* a = accepted(e.request);
    if (a == nullptr || a->expected == nullptr) continue;
    const std::vector<Token>& right = a->expected->tokens;
    if (a->tokens >= right.size() || right[a->tokens] != e.id)
      broken("R1: token " + std::to_string(a->tokens) + " of " + label(e.request) + " is " + std::to_string(e.id) + ", undisturbed it is " +
             (a->tokens < right.size() ? std::to_string(right[a->tokens]) : "none"));
    ++a->tokens;
  }
  for (const Finish& f : batch.finishes) end(f);
  for (const Finish& f : batch.finishes) {
    Stream& s = stream_of(f.request);
    if (s.finish) broken("R5: a second end of " + label(f.request));
    s.text += batch.text.substr(f.text_begin, f.text_size);
    s.finish = f;
    Accepting* a = accepted(f.request);
    if (a == nullptr || a->expected == nullptr || (f.reason != FinishReason::stop && f.reason != FinishReason::length)) continue;
    if (a->tokens != a->expected->tokens.size() || f.reason != a->expected->finish->reason || s.text != a->expected->text)
      broken("R1: " + label(f) + ": undisturbed it is " + label(*a->expected->finish));
  }
}

void World::end(const Finish& f) {
  finishes_.push_back(f);
  if (Accepting* a = accepted(f.request)) {
    if (std::exchange(a->ended, true)) broken("R5: a second end of " + label(f.request));
  }
  // R7: one failure is retried; an error needs a second one, or a device that is gone.
  const bool of_lora = f.error.code == ErrorCode::unknown_adapter || f.error.code == ErrorCode::adapter_gone;
  if (of_lora && model_.max_loras == 0) broken("R9: " + label(f) + " without any adapter");
  if (f.reason == FinishReason::error && !of_lora && !device_core_.lost() && witness_.hits(f.request) < 2)
    broken("R7: " + label(f.request) + " failed, and " + std::to_string(witness_.hits(f.request)) + " faults met it: " + f.error.what);
}

void World::deliver(Actor to, const Message& m) {
  ++messages_;
  if (keep_log) log.push_back(std::visit([](const auto& x) { return label(x); }, m));
  std::visit(
      [&](const auto& x) {
        using M = std::decay_t<decltype(x)>;
        received(to, x);
        switch (to) {
          case Actor::dispatcher:
            call(to, dispatcher_, x, dispatcher_out_);
            break;
          case Actor::scheduler:
            settled_ += std::is_same_v<M, Settled> ? 1 : 0;
            call(to, scheduler_, x, scheduler_out_);
            break;
          case Actor::router:
            observe(x);
            call(to, router_, x, router_out_);
            break;
          case Actor::device:
            call(to, device_core_, x, device_out_);
            break;
          case Actor::sampler:
            call(to, sampler_, x, sampler_out_);
            break;
          case Actor::lora:
            call(to, lora_, x, lora_out_);
            break;
          case Actor::loader:
            if constexpr (std::is_same_v<M, LoadAdapter>) send(Actor::loader, Actor::lora, AdapterLoaded{{}, x.id, device_.load(x)});
            break;
          case Actor::stream:
            if constexpr (std::is_same_v<M, ChangeTable>) send(Actor::stream, Actor::router, TableChanged{{}, device_.change(x)});
            if constexpr (std::is_same_v<M, Enqueue>) {
              const auto n_rows = static_cast<std::uint32_t>(x.step->rows.size());
              send(Actor::stream, Actor::device,
                   Watch{{}, x.step->ticket, x.step->slot.slot, n_rows, x.step->n_logits, device_.enqueue(x)});
            } else if constexpr (std::is_same_v<M, CopyBlocks>) {
              send(Actor::stream, Actor::device, Watch{{}, x.copy, ring_slots_ + x.handles.place, 0, 0, device_.enqueue(x)});
            }
            break;
          case Actor::spill:
            call(to, *spill_, x, spill_out_);
            break;
          case Actor::edge:
            if constexpr (std::is_same_v<M, SubmitReply>)
              replies_.push_back(x);
            else if constexpr (std::is_same_v<M, CancelReply>)
              cancels_.push_back(x);
            else if constexpr (std::is_same_v<M, Drained>)
              drained_ = true;
            else if constexpr (std::is_same_v<M, LoraAnswer>)
              answers_.push_back(x);
            else if constexpr (std::is_same_v<M, Deliver>)
              receive(*x.batch);
            break;
        }
      },
      m);
  if (!witness_.violation().empty()) broken(witness_.violation());
  if (!device_.violation().empty()) broken(device_.violation());
  if (to == Actor::lora && options_.own_checks)
    if (auto e = lora_.check(); !e.empty()) broken(e);
  if (to == Actor::router && options_.own_checks)
    if (auto e = router_.check(); !e.empty()) broken(e);
  if (to == Actor::scheduler && options_.own_checks)
    if (auto e = scheduler_.check(); !e.empty()) broken(e);
}

// A timer that is due; with nothing else to do, time jumps to the next one.
bool World::fire_timer(bool idle) {
  int next = -1;
  for (int i = 0; i < 10; ++i)
    if (timers_[i] && (next < 0 || *timers_[i] < *timers_[next])) next = i;
  if (next < 0 || (!idle && *timers_[next] > now_)) return false;
  now_ = std::max(now_, *timers_[next]);
  timers_[next].reset();
  recorder_.at_the_edge();
  Tick tick;
  sent(static_cast<Actor>(next), static_cast<Actor>(next), tick);
  deliver(static_cast<Actor>(next), tick);
  return true;
}

bool World::step() {
  ready_.clear();
  for (std::size_t i = 0; i < queues_.size(); ++i)
    if (!queues_[i].messages.empty()) ready_.push_back(i);
  const bool device = device_.runnable();
  now_ += 1000;
  if (fire_timer(ready_.empty() && !device)) return true;
  if (device && (ready_.empty() || (!options_.in_order && random_() % (ready_.size() + options_.device_lag) == 0))) {
    recorder_.at_the_edge();
    if (auto done = device_.run_head()) send(Actor::edge, Actor::device, std::move(*done));
    return true;
  }
  if (ready_.empty()) return false;
  const auto earlier = [&](std::size_t a, std::size_t b) { return queues_[a].messages.front().first < queues_[b].messages.front().first; };
  const std::size_t pick = options_.in_order ? *std::min_element(ready_.begin(), ready_.end(), earlier) : ready_[random_() % ready_.size()];
  const Actor to = queues_[pick].to;
  const Message m = std::move(queues_[pick].messages.front().second);
  queues_[pick].messages.pop_front();
  deliver(to, m);
  return true;
}

std::uint64_t World::run(std::uint64_t limit) {
  std::uint64_t n = 0;
  while (n < limit && violation_.empty() && step()) ++n;
  if (n == limit) broken("R10: still not done after " + std::to_string(limit) + " steps");
  return n;
}

void World::finish() {
  for (const Accepting& a : accepted_)
    if (!a.ended) broken("R5: " + label(a.id) + " was accepted and has no end");
  for (const Commanded& c : commands_)
    if (!c.answer) broken("R9: " + label(c.submit) + " has no answer");
  if (lora_.busy() || lora_.waiting() > 0) broken("R9: the LoRA controller is not done, and nothing is left to do");
  const DeviceFacts f = router_.facts();
  if (f.in_flight > 0) broken("R8: " + std::to_string(f.in_flight) + " tickets are open, and nothing is left to do");
  if (!device_core_.lost() &&
      (f.free_blocks + f.cached_blocks != f.total_blocks || f.free_slots != f.total_slots || f.free_ring_slots != f.ring_slots))
    broken("R8: not everything came back: " + label(f));
  if (spill_->files() > 0 || spill_->bytes() > 0 || files_->count() > 0)
    broken("R8: " + std::to_string(files_->count()) + " saved states are left");
  recorder_.at_the_edge();
  Teardown teardown;
  sent(Actor::edge, Actor::router, teardown);
  received(Actor::router, teardown);
  router_.on(teardown, now_, router_out_);
  bool told = false;
  for (const auto& item : router_out_.items()) {
    const auto* down = std::get_if<TornDown>(&item);
    if (down == nullptr) continue;
    TornDown recorded = *down;
    sent(Actor::router, Actor::edge, recorded);
    told =
        down->facts.free_blocks == f.total_blocks && down->facts.free_slots == f.total_slots && down->facts.free_ring_slots == f.ring_slots;
  }
  if (!told) broken("R8: after teardown the pools are not whole");
  router_out_.clear();
}

SubmitReply World::submit(Request request) {
  const std::size_t answered = replies_.size();
  post(std::move(request), nullptr);
  while (replies_.size() == answered && violation_.empty() && step()) {
  }
  return replies_.size() > answered ? replies_.back() : SubmitReply{};
}

void World::post(Request request, const Stream* expected) {
  const std::uint64_t seed = random_();
  auto shared = Shared<Request>::of(std::move(request));
  if (expected != nullptr) expected_[shared.get()] = expected;
  recorder_.at_the_edge();
  send(Actor::edge, Actor::dispatcher, Submit{{}, std::move(shared), seed});
}

void World::cancel(std::uint64_t client) {
  recorder_.at_the_edge();
  send(Actor::edge, Actor::dispatcher, Cancel{{}, client});
}

void World::drain() {
  recorder_.at_the_edge();
  send(Actor::edge, Actor::dispatcher, Drain{});
}

void World::lora(LoraCommand command) {
  recorder_.at_the_edge();
  send(Actor::edge, Actor::dispatcher, LoraSubmit{{}, ++lora_ids_, std::move(command)});
}

std::uint64_t World::longest_gap(std::uint64_t client) const {
  const auto it = paces_.find(client);
  return it == paces_.end() ? 0 : it->second.longest;
}

void World::hold(AdapterRef adapter, TimeNs until) {
  recorder_.at_the_edge();
  send(Actor::lora, Actor::scheduler, LoraHold{{}, adapter, until});
}

// A request leaves the LoRA controller. What it is bound to must be no older than what the last command before it that
// concerned its name did, and that command must have been answered; from here on its stream is known.
void World::bound(const Admit& m) {
  Accepting* a = accepted(m.id);
  if (a == nullptr || m.parked) return;
  const std::string& name = m.request->adapter;
  for (std::size_t i = a->commands; i > 0 && !name.empty(); --i) {
    const Commanded& c = commands_[i - 1];
    const bool loads = c.submit.command.kind == LoraCommand::Kind::load_into_slot || c.submit.command.kind == LoraCommand::Kind::promote_disk;
    if (c.submit.command.name != name || !(loads || c.submit.command.kind == LoraCommand::Kind::unload)) continue;
    if (!c.answer) {
      broken("R9: " + label(m.id) + " was bound before the outcome of " + label(c.submit));
    } else if (c.answer->error.code == ErrorCode::none && loads && m.error.code == ErrorCode::none &&
               m.adapter.generation < c.answer->ack.adapter.generation) {
      broken("R9: " + label(m.id) + " is bound to " + label(m.adapter) + ", older than the outcome of " + label(c.submit));
    }
    break;
  }
  if (m.error.code != ErrorCode::none || m.adapter.slot == 0) return;
  if (loaded_.count(m.adapter) == 0) return broken("R9: " + label(m.id) + " is bound to " + label(m.adapter) + ", which nobody loaded");
  Stream& s = oracles_.emplace_back();
  const Request& q = *m.request;
  s.tokens = expected_tokens(q, model_, options_.device, sim_adapter(loaded_[m.adapter]));
  const Token last = s.tokens.back();
  const bool stops = std::count(q.stop.stop_token_ids.begin(), q.stop.stop_token_ids.end(), last) > 0 || (!q.stop.ignore_eos && last == 1);
  s.finish.emplace();
  s.finish->reason = stops && (s.tokens.size() > q.stop.min_tokens || q.stop.min_tokens == 0) ? FinishReason::stop : FinishReason::length;
  for (const Token id : s.tokens) s.text += model_.tokens->text(id);
  a->expected = &s;
}

std::vector<Token> expected_tokens(const Request& q, const ModelInfo& model, const SimDeviceOptions& device, std::uint64_t adapter) {
  std::vector<std::uint64_t> states;
  std::uint64_t state = 0;  // what the choice is made from: the last state, or the window's
  const auto push = [&](Token id) {
    const auto position = static_cast<std::uint32_t>(states.size());
    std::uint64_t before = position == 0 ? 0 : states.back();
    if (device.window == 0 && position > 0) before = sim_attend(before, sim_earlier(position), states[sim_earlier(position)]);
    states.push_back(sim_state(before, position, id, adapter));
    state = states.back();
    if (device.window == 0) return;
    state = 0;
    for (std::uint32_t p = position - std::min(position, device.window - 1); p <= position; ++p) state = sim_attend(state, p, states[p]);
  };
  for (const Token id : q.prompt) push(id);
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
    push(id);
  }
  return out;
}

}  // namespace troupe::sim
