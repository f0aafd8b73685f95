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
  constexpr actors::Sender kSenders[] = {
      actors::Sender::runtime, actors::Sender::dispatcher, actors::Sender::scheduler, actors::Sender::router, actors::Sender::stream,
      actors::Sender::device,  actors::Sender::sampler,    actors::Sender::spill,     actors::Sender::lora,   actors::Sender::loader,
      actors::Sender::copy_stream};
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
  if constexpr (std::is_same_v<M, RecordEvent>) witness_.record(m);
  if constexpr (std::is_same_v<M, ReadState>) witness_.read_state(m);
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
  else if constexpr (std::is_same_v<M, LoraHold> || std::is_same_v<M, LoraResume> || std::is_same_v<M, Opened> ||
                     std::is_same_v<M, Accepted> || std::is_same_v<M, Settled> || std::is_same_v<M, Applied> ||
                     std::is_same_v<M, Sampled> || std::is_same_v<M, Halt> || std::is_same_v<M, Saved>)
    send(self, Actor::scheduler, std::move(m));
  else if constexpr (std::is_same_v<M, Open> || std::is_same_v<M, Launch> || std::is_same_v<M, Apply> || std::is_same_v<M, CopyDone> ||
                     std::is_same_v<M, StateWritten> || std::is_same_v<M, StateRead>)
    send(self, Actor::router, std::move(m));
  else if constexpr (std::is_same_v<M, WriteState> || std::is_same_v<M, ReadState> || std::is_same_v<M, DropState>)
    send(self, Actor::spill, std::move(m));
  else if constexpr (std::is_same_v<M, Enqueue> || std::is_same_v<M, RecordEvent>)
    send(self, Actor::stream, std::move(m));
  else if constexpr (std::is_same_v<M, CopyBlocks>)
    send(self, options_.device.copy_stream ? Actor::copy_stream : Actor::stream, std::move(m));
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
  else if constexpr (std::is_same_v<M, EventRecorded>)
    witness_.recorded(m);
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
            if constexpr (std::is_same_v<M, RecordEvent>)
              send(Actor::stream, Actor::router, EventRecorded{{}, x.mark, x.place, device_.record(x)});
            if constexpr (std::is_same_v<M, Enqueue>) {
              const auto n_rows = static_cast<std::uint32_t>(x.step->rows.size());
              send(Actor::stream, Actor::device,
                   Watch{{}, x.step->ticket, x.step->slot.slot, n_rows, x.step->n_logits, device_.enqueue(x)});
            } else if constexpr (std::is_same_v<M, CopyBlocks>) {
              send(Actor::stream, Actor::device, Watch{{}, x.copy, ring_slots_ + x.handles.place, 0, 0, device_.enqueue(x)});
            }
            break;
          case Actor::copy_stream:
            if constexpr (std::is_same_v<M, CopyBlocks>) {
              const DeviceError error = device_.enqueue(x);
              unsafe_ = unsafe_ || (!x.out && error.phase == DeviceError::Phase::forward);
              send(Actor::copy_stream, Actor::device, Watch{{}, x.copy, ring_slots_ + x.handles.place, 0, 0, error});
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
  for (int i = 0; i < 11; ++i)
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
    if (auto done = device_.run_head(options_.device.copy_stream && !options_.in_order ? random_() : 0)) send(Actor::edge, Actor::device, std::move(*done));
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
  if (!device_core_.lost() && !unsafe_ &&
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

}  // namespace troupe::sim
