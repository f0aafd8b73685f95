#include "tests/sim/world.h"

#include <algorithm>
#include <utility>

namespace troupe::sim {

namespace {

constexpr std::size_t kMaxMailbox = 64;  // of one pair of actors (R11)

}  // namespace

actors::Sender World::sender_of(Actor actor) {
  constexpr actors::Sender kSenders[] = {actors::Sender::runtime,       actors::Sender::dispatcher, actors::Sender::delivery,
                                         actors::Sender::scheduler,     actors::Sender::router,     actors::Sender::stream,
                                         actors::Sender::device,        actors::Sender::sampler,    actors::Sender::spill,
                                         actors::Sender::lora,          actors::Sender::loader,     actors::Sender::copy_stream,
                                         actors::Sender::prefill_stream};
  static_assert(std::size(kSenders) == kActors);
  return kSenders[static_cast<int>(actor)];
}

std::vector<std::uint8_t> World::recording() { return recorder_.bytes(); }

void World::send(End from, End to, Message m) {
  std::visit([&](auto& x) { sent(from, to, x); }, m);
  Queue* queue = nullptr;
  for (Queue& q : queues_)
    if (q.from == from && q.to == to) queue = &q;
  if (queue == nullptr) queue = &queues_.emplace_back(Queue{from, to, {}});
  queue->messages.emplace_back(order_++, std::move(m));
  if (queue->messages.size() > kMaxMailbox && from.actor != Actor::edge && takes(to))
    broken("R11: " + std::to_string(queue->messages.size()) + " messages wait for one actor");
}

void World::broken(std::string what) {
  if (violation_.empty())
    violation_ = std::move(what) + " (after message " + std::to_string(messages_) + ", seed " + std::to_string(options_.seed) + ")";
}

// What the judges see of a message that is sent.
template <class M>
void World::watch(End self, const M& m) {
  Part& p = *parts_[self.part];
  if constexpr (std::is_same_v<M, Enqueue>) p.witness.enqueue(*m.step);
  if constexpr (std::is_same_v<M, Opened>) p.witness.opened(m);
  if constexpr (std::is_same_v<M, RecordEvent>) p.witness.record(m);
  if constexpr (std::is_same_v<M, ReadState>) p.witness.read_state(m);
  if constexpr (std::is_same_v<M, CopyBlocks>) p.witness.copy(m);
  if constexpr (std::is_same_v<M, Saved>) p.witness.saved(m);
  if constexpr (std::is_same_v<M, Admit>) {
    if (self.actor == Actor::dispatcher)
      placed(m);
    else
      bound(p, m);
  }
  if constexpr (std::is_same_v<M, SubmitReply>) {
    if (m.error.code == ErrorCode::none) accept(m.request);
  }
  if constexpr (std::is_same_v<M, ChangeTable>) p.witness.change(m);
  if constexpr (std::is_same_v<M, Deliver>) {
    for (const TokenEvent& e : m.batch->events) {
      Pace& pace = paces_[e.request.client];
      if (pace.id != e.request) pace = {e.request, settled_, 0};
      pace.longest = std::max(pace.longest, settled_ - pace.last);
      pace.last = settled_;
    }
  }
  if constexpr (std::is_same_v<M, LoraSubmit>) {
    if (options_.replicas == 0) commands_.push_back({m, {}});
  }
  if constexpr (std::is_same_v<M, LoraAnswer>) {
    if (self.actor == (options_.replicas == 0 ? Actor::lora : Actor::dispatcher)) {
      for (Commanded& c : commands_) {
        if (c.submit.id != m.id) continue;
        if (c.answer) broken("R9: a second answer to " + label(c.submit));
        c.answer = m;
      }
    }
  }
  if constexpr (std::is_same_v<M, LoraAnswer>) {
    if (self.actor == Actor::lora) p.answered[m.id] = p.answered[m.id] || m.error.code == ErrorCode::none;
  }
  if constexpr (std::is_same_v<M, LoadAdapter>) {
    const std::string file = m.image ? std::string(m.image->bytes.begin(), m.image->bytes.end()) : m.path;
    p.loaded[{m.slot, 0}] = file;
  }
  if constexpr (std::is_same_v<M, Lora>) {
    if (m.show.slot != 0 && !m.withdraw) p.loaded[m.show] = p.loaded[{m.show.slot, 0}];
  }
  if constexpr (std::is_same_v<M, Accepted>) {
    if (m.error.code == ErrorCode::none)
      p.refusals = 0;
    else if (++p.refusals > 16 + 2 * options_.max_batch)
      broken("R10: launches are refused in a loop");
  }
  if constexpr (std::is_same_v<M, Settled> || std::is_same_v<M, Applied> || std::is_same_v<M, Opened> || std::is_same_v<M, Saved>)
    p.refusals = 0;
  if constexpr (std::is_same_v<M, StopReplica>) fenced_.push_back(m.replica);
  if constexpr (std::is_same_v<M, Admit> || std::is_same_v<M, CancelRequest> || std::is_same_v<M, Drain> || std::is_same_v<M, LoraSubmit> ||
                std::is_same_v<M, AskReport> || std::is_same_v<M, FetchAdapter>) {
    if (self.actor == Actor::dispatcher && std::count(fenced_.begin(), fenced_.end(), m.replica) > 0)
      broken("R5: " + label(m) + " went to a replica that is fenced");
  }
}

// Where each message of an outbox goes.
template <class M>
void World::route(End self, M m) {
  watch(self, m);
  const auto own = [&](Actor actor) { return End{actor, self.part}; };
  const bool front = self.actor == Actor::dispatcher;
  // From the dispatcher: to the actor of the replica that the message names.
  [[maybe_unused]] const auto to_replica = [&](Actor actor, auto&& message) {
    std::optional<std::uint32_t> part = 0;
    if (options_.replicas > 0) part = part_of(message.replica);
    if (!part) return broken("R5: " + label(message) + " went to a replica that is not there");
    send(self, {actor, *part}, std::move(message));
  };
  [[maybe_unused]] const Actor door = model_.max_loras > 0 ? Actor::lora : Actor::scheduler;

  if constexpr (std::is_same_v<M, SetTimer>) {
    sent(self, self, m);
    (front ? timers_ : parts_[self.part]->timers)[static_cast<int>(self.actor)] = m.at;
  } else if constexpr (std::is_same_v<M, ReadSlot>) {
    send(own(Actor::device), own(Actor::router), Completed{{}, m.ring_slot, Shared<StepResult>::of(parts_[self.part]->device.read(m))});
  } else if constexpr (std::is_same_v<M, SubmitReply> || std::is_same_v<M, ReplicaAnswer> || std::is_same_v<M, ReplicaList> ||
                       std::is_same_v<M, StartReplica> || std::is_same_v<M, StopReplica>) {
    send(self, {Actor::edge}, std::move(m));
  } else if constexpr (std::is_same_v<M, CancelReply> || std::is_same_v<M, Drained> || std::is_same_v<M, LoraAnswer>) {
    send(self, {front ? Actor::edge : Actor::dispatcher}, std::move(m));
  } else if constexpr (std::is_same_v<M, Deliver> || std::is_same_v<M, Reclaim> || std::is_same_v<M, EndRequests>) {
    send(self, {Actor::delivery}, std::move(m));
  } else if constexpr (std::is_same_v<M, Admit> || std::is_same_v<M, CancelRequest> || std::is_same_v<M, Drain>) {
    if (front)
      to_replica(door, m);
    else
      send(self, own(Actor::scheduler), std::move(m));
  } else if constexpr (std::is_same_v<M, Ended>) {
    if (front)
      to_replica(Actor::lora, m);
    else
      send(self, {Actor::dispatcher}, std::move(m));
  } else if constexpr (std::is_same_v<M, LoraSubmit> || std::is_same_v<M, FetchAdapter>) {
    to_replica(Actor::lora, m);
  } else if constexpr (std::is_same_v<M, AskReport>) {
    to_replica(Actor::scheduler, m);
  } else if constexpr (std::is_same_v<M, ReplicaLost> || std::is_same_v<M, ReplicaReport> || std::is_same_v<M, Reclaimed> ||
                       std::is_same_v<M, Delivered> || std::is_same_v<M, LoraBound> || std::is_same_v<M, AdapterFetched>) {
    send(self, {Actor::dispatcher}, std::move(m));
  } else if constexpr (std::is_same_v<M, LoraReply>) {
    send(self, own(Actor::lora), std::move(m));
  } else if constexpr (std::is_same_v<M, LoadAdapter> || std::is_same_v<M, ReadAdapter>) {
    send(self, own(Actor::loader), std::move(m));
  } else if constexpr (std::is_same_v<M, Lora>) {
    send(self, own(Actor::router), std::move(m));
  } else if constexpr (std::is_same_v<M, ChangeTable>) {
    send(self, own(Actor::stream), std::move(m));
  } else if constexpr (std::is_same_v<M, LoraHold> || std::is_same_v<M, LoraResume> || std::is_same_v<M, Opened> ||
                       std::is_same_v<M, Accepted> || std::is_same_v<M, Settled> || std::is_same_v<M, Applied> ||
                       std::is_same_v<M, Sampled> || std::is_same_v<M, Halt> || std::is_same_v<M, Saved>) {
    send(self, own(Actor::scheduler), std::move(m));
  } else if constexpr (std::is_same_v<M, Open> || std::is_same_v<M, Launch> || std::is_same_v<M, Apply> || std::is_same_v<M, CopyDone> ||
                       std::is_same_v<M, StateWritten> || std::is_same_v<M, StateRead>) {
    send(self, own(Actor::router), std::move(m));
  } else if constexpr (std::is_same_v<M, WriteState> || std::is_same_v<M, ReadState> || std::is_same_v<M, DropState>) {
    send(self, own(Actor::spill), std::move(m));
  } else if constexpr (std::is_same_v<M, Enqueue>) {
    const End stream = own(m.step->slot.stream == kPrefillStream ? Actor::prefill_stream : Actor::stream);
    send(self, stream, std::move(m));
  } else if constexpr (std::is_same_v<M, RecordEvent>) {
    send(self, own(Actor::stream), std::move(m));
  } else if constexpr (std::is_same_v<M, CopyBlocks>) {
    send(self, own(m.handles.order != 0 ? Actor::copy_stream : Actor::stream), std::move(m));
  } else if constexpr (std::is_same_v<M, Sample>) {
    send(self, own(Actor::sampler), std::move(m));
  } else {
    static_assert(std::is_same_v<M, TornDown>);
  }
}

// What the Witness sees before the router does.
template <class M>
void World::observe(End to, const M& m) {
  actors::trace::Witness& witness = parts_[to.part]->witness;
  if constexpr (std::is_same_v<M, Launch>)
    witness.launch(m);
  else if constexpr (std::is_same_v<M, Apply>)
    witness.apply(m.effect);
  else if constexpr (std::is_same_v<M, Completed>)
    witness.completed(m);
  else if constexpr (std::is_same_v<M, EventRecorded>)
    witness.recorded(m);
  else if constexpr (std::is_same_v<M, CopyDone>)
    witness.copy_done(m);
}

template <class Core, class M, class Out>
void World::call(End self, Core& core, const M& m, Out& out) {
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

template <class M>
void World::take_up(End to, const M& m) {
  Part& p = *parts_[to.part];
  const auto own = [&](Actor actor) { return End{actor, to.part}; };
  switch (to.actor) {
    case Actor::dispatcher:
      if constexpr (std::is_same_v<M, LoraSubmit>) {
        if (options_.replicas > 0) commands_.push_back({m, {}});
      }
      if constexpr (std::is_same_v<M, Submit>) submitting_ = m.request;
      call(to, dispatcher_, m, dispatcher_out_);
      break;
    case Actor::delivery:
      if constexpr (std::is_same_v<M, Reclaim>) {
        for (const Placed& r : m.requests)
          if (Accepting* a = accepted(r.id)) a->counts = r.attempt;
      }
      call(to, delivery_, m, delivery_out_);
      if constexpr (std::is_same_v<M, Deliver>) receive(*m.batch);
      if constexpr (std::is_same_v<M, EndRequests>)
        for (const std::uint32_t i : delivery_.finishes())
          end(m.finishes[i], std::string_view(m.text).substr(m.finishes[i].text_begin, m.finishes[i].text_size));
      break;
    case Actor::scheduler:
      settled_ += std::is_same_v<M, Settled> ? 1 : 0;
      call(to, p.scheduler, m, p.scheduler_out);
      break;
    case Actor::router:
      observe(to, m);
      call(to, p.router, m, p.router_out);
      break;
    case Actor::device:
      call(to, p.device_core, m, p.device_out);
      break;
    case Actor::sampler:
      call(to, p.sampler, m, p.sampler_out);
      break;
    case Actor::lora:
      call(to, p.lora, m, p.lora_out);
      break;
    case Actor::loader:
      if constexpr (std::is_same_v<M, LoadAdapter>) {
        LoadAdapter load = m;
        if (m.image) load.path.assign(m.image->bytes.begin(), m.image->bytes.end());
        send(to, own(Actor::lora), AdapterLoaded{{}, m.id, p.device.load(load)});
      }
      if constexpr (std::is_same_v<M, ReadAdapter>) {
        const std::string& file = p.loaded[{m.slot, 0}];
        send(to, own(Actor::lora), AdapterRead{{}, m.id, Shared<AdapterImage>::of(AdapterImage{{file.begin(), file.end()}}), {}});
      }
      break;
    case Actor::stream:
    case Actor::prefill_stream:
      if constexpr (std::is_same_v<M, ChangeTable>) send(to, own(Actor::router), TableChanged{{}, p.device.change(m)});
      if constexpr (std::is_same_v<M, RecordEvent>) send(to, own(Actor::router), EventRecorded{{}, m.mark, m.place, p.device.record(m)});
      if constexpr (std::is_same_v<M, Enqueue>) {
        const auto n_rows = static_cast<std::uint32_t>(m.step->rows.size());
        send(to, own(Actor::device),
             Watch{{},
                   m.step->ticket,
                   m.step->slot.slot,
                   n_rows,
                   m.step->n_logits,
                   p.device.enqueue(m),
                   p.device.marks_end(*m.step),
                   m.step->n_logprobs});
      } else if constexpr (std::is_same_v<M, CopyBlocks>) {
        const DeviceError error = p.device.enqueue(m);
        p.unsafe = p.unsafe || (options_.device.prefill_stream && !m.out && error.phase == DeviceError::Phase::forward);
        send(to, own(Actor::device), Watch{{}, m.copy, ring_slots_ + m.handles.place, 0, 0, error});
      }
      break;
    case Actor::copy_stream:
      if constexpr (std::is_same_v<M, CopyBlocks>) {
        const DeviceError error = p.device.enqueue(m);
        p.unsafe = p.unsafe || (!m.out && error.phase == DeviceError::Phase::forward);
        send(to, own(Actor::device), Watch{{}, m.copy, ring_slots_ + m.handles.place, 0, 0, error});
      }
      break;
    case Actor::spill:
      call(to, p.spill, m, p.spill_out);
      break;
    case Actor::edge:
      if constexpr (std::is_same_v<M, SubmitReply>)
        replies_.push_back(m);
      else if constexpr (std::is_same_v<M, CancelReply>)
        cancels_.push_back(m);
      else if constexpr (std::is_same_v<M, Drained>)
        drained_ = true;
      else if constexpr (std::is_same_v<M, LoraAnswer>)
        answers_.push_back(m);
      else if constexpr (std::is_same_v<M, ReplicaAnswer>)
        replica_answers_.push_back(m);
      else if constexpr (std::is_same_v<M, StartReplica> || std::is_same_v<M, StopReplica>)
        keep(m);
      break;
    case Actor::count:
      break;
  }
}

void World::deliver(End to, const Message& m) {
  ++messages_;
  if (keep_log) {
    std::string line = std::visit([](const auto& x) { return label(x); }, m);
    if (options_.replicas > 0) line = label(parts_[to.part]->ref) + (to.actor < Actor::scheduler ? " front " : " ") + line;
    log.push_back(std::move(line));
  }
  std::visit(
      [&](const auto& x) {
        received(to, x);
        take_up(to, x);
      },
      m);
  Part& p = *parts_[to.part];
  if (!p.witness.violation().empty()) broken(p.witness.violation());
  if (!p.device.violation().empty()) broken(p.device.violation());
  if (!options_.own_checks) return;
  if (to.actor == Actor::lora)
    if (auto e = p.lora.check(); !e.empty()) broken(e);
  if (to.actor == Actor::router)
    if (auto e = p.router.check(); !e.empty()) broken(e);
  if (to.actor == Actor::scheduler)
    if (auto e = p.scheduler.check(); !e.empty()) broken(e);
  if (to.actor == Actor::dispatcher)
    if (auto e = dispatcher_.check(); !e.empty()) broken(e);
}

// A timer that is due; with nothing else to do, time jumps to the next one.
bool World::fire_timer(bool idle) {
  std::optional<TimeNs>* next = nullptr;
  End to;
  const auto look = [&](std::optional<TimeNs>& timer, End end) {
    if (timer && (next == nullptr || *timer < **next)) next = &timer, to = end;
  };
  for (std::size_t i = 0; i < kActors; ++i) look(timers_[i], {static_cast<Actor>(i)});
  for (std::uint32_t part = 0; part < parts_.size(); ++part)
    if (takes({Actor::scheduler, part}))
      for (std::size_t i = 0; i < kActors; ++i) look(parts_[part]->timers[i], {static_cast<Actor>(i), part});
  if (next == nullptr || (!idle && **next > now_)) return false;
  now_ = std::max(now_, **next);
  next->reset();
  recorder_.at_the_edge();
  Tick tick;
  sent(to, to, tick);
  deliver(to, tick);
  return true;
}

bool World::step() {
  ready_.clear();
  for (std::size_t i = 0; i < queues_.size(); ++i)
    if (!queues_[i].messages.empty() && takes(queues_[i].to)) ready_.push_back(i);
  if (options_.link_lag > 1 && ready_.size() > 1) {
    const auto far = [&](std::size_t i) { return (queues_[i].from.actor < Actor::scheduler) != (queues_[i].to.actor < Actor::scheduler); };
    std::erase_if(ready_, [&](std::size_t i) { return far(i) && random_() % options_.link_lag != 0; });
    if (ready_.empty()) return now_ += 1000, true;
  }
  std::uint32_t lag = options_.device_lag;
  devices_.clear();
  for (std::uint32_t i = 0; i < parts_.size(); ++i)
    if (takes({Actor::device, i}) && parts_[i]->device.runnable()) devices_.push_back(i);
  const bool device = !devices_.empty();
  now_ += 1000;
  if (fire_timer(ready_.empty() && !device)) return true;
  if (device && (ready_.empty() || (!options_.in_order && random_() % (ready_.size() + lag) == 0))) {
    recorder_.at_the_edge();
    const std::uint32_t at = devices_.size() == 1 ? devices_[0] : devices_[random_() % devices_.size()];
    Part& p = *parts_[at];
    const bool several = options_.device.copy_stream || options_.device.prefill_stream;
    if (p.slow > 1 && !ready_.empty() && random_() % p.slow != 0) return true;
    if (auto done = p.device.run_head(several && !options_.in_order ? random_() : 0))
      send({Actor::edge, at}, {Actor::device, at}, std::move(*done));
    return true;
  }
  if (ready_.empty()) return false;
  const auto earlier = [&](std::size_t a, std::size_t b) { return queues_[a].messages.front().first < queues_[b].messages.front().first; };
  const std::size_t pick = options_.in_order ? *std::min_element(ready_.begin(), ready_.end(), earlier) : ready_[random_() % ready_.size()];
  const End to = queues_[pick].to;
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

}  // namespace troupe::sim
