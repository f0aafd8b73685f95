// The world's beginning and end: what its cores are made with, and what must be left when nothing is left to do.
#include <algorithm>
#include <utility>

#include "tests/sim/world.h"

namespace troupe::sim {

namespace {

constexpr TimeNs kStepTimeout = TimeNs{60} * 1'000'000'000;

actors::SchedulerConfig scheduler_config(const WorldOptions& o) {
  actors::SchedulerConfig c;
  c.depth = o.depth;
  c.max_batch = o.max_batch;
  c.step_tokens = o.step_tokens;
  c.spill_places = o.device.spill_places;
  c.spill_min_blocks = o.spill_min_blocks;
  c.prefill_stream = o.device.prefill_stream;
  c.movable = o.replicas > 0;
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
  for (std::uint32_t i = 0; i < o.replicas; ++i) c.replicas.push_back({"sim:" + std::to_string(i)});
  c.placement = o.placement;
  // A turn of the world takes 1000.
  c.supervision = {o.max_restarts, 100'000'000, 50'000, 800'000, 20'000'000, 200'000, 4'000'000, 8'000'000};
  c.max_moves = o.max_moves;
  c.fault = o.dispatcher_fault;
  return c;
}

actors::LoraConfig lora_config(const WorldOptions& o) {
  actors::LoraConfig c;
  c.max_wait = 300'000;  // a turn of the world takes 1000
  c.lease = 100'000;
  c.max_commands = 4;
  c.policy = o.lora_policy;
  c.movable = o.replicas > 0;
  c.fault = o.lora_fault;
  return c;
}

}  // namespace

World::World(const WorldOptions& o)
    : options_(o),
      ring_slots_((o.ring_slots != 0 ? o.ring_slots : o.depth + 1) * (o.device.prefill_stream ? 2 : 1)),
      random_(o.seed),
      model_(sim_model(o.device)),
      dispatcher_(dispatcher_config(o), model_),
      delivery_({o.replicas > 0, o.delivery_fault}) {
  const PartConfig c = part_config({0, 1});
  if (o.record && o.replicas == 0)
    recorder_.begin({dispatcher_config(o),
                     c.scheduler,
                     c.router,
                     {c.ring_slots, c.step_timeout, c.device.spill_places, c.device.prefill_stream ? c.ring_slots / 2 : 0},
                     c.lora,
                     c.spill,
                     model_});
  for (std::uint32_t i = 0; i < std::max(1u, o.replicas); ++i) add_part({i, 1});
}

PartConfig World::part_config(ReplicaRef ref) const {
  PartConfig c;
  c.ring_slots = ring_slots_;
  c.step_timeout = kStepTimeout;
  c.device = ref.incarnation == 1 && ref.index < options_.devices.size() ? options_.devices[ref.index] : options_.device;
  c.files = options_.files;
  c.scheduler = scheduler_config(options_);
  c.router = router_config(options_);
  c.lora = lora_config(options_);
  c.spill = {options_.spill_limit, options_.spill_fault};
  c.scheduler.replica = c.lora.replica = ref;
  c.scheduler.router_incarnation = c.router.incarnation = ref.incarnation;
  return c;
}

// Of several replicas the dispatcher hears that it is up.
void World::add_part(ReplicaRef ref) {
  const End router{Actor::router, static_cast<std::uint32_t>(parts_.size())}, device{Actor::device, router.part};
  Part& p = *parts_.emplace_back(std::make_unique<Part>(part_config(ref), model_));
  RingReady ready{{}, p.device.ring(), p.device.places()};
  sent(device, router, ready);
  received(router, ready);
  p.router.on(ready, now_, p.router_out);
  if (options_.replicas == 0) return;
  const bool other = ref.index < options_.arithmetic.size();
  send({Actor::edge}, {Actor::dispatcher}, ReplicaUp{{}, ref, other ? options_.arithmetic[ref.index] : "sim"});
}

void World::finish() {
  for (const Accepting& a : accepted_)
    if (!a.ended) broken("R5: " + label(a.id) + " was accepted and has no end");
  for (const Commanded& c : commands_)
    if (!c.answer) broken("R9: " + label(c.submit) + " has no answer");
  if (delivery_.stats().repeated > 0) broken("R5: " + std::to_string(delivery_.stats().repeated) + " tokens were sent again");
  for (std::uint32_t i = 0; i < parts_.size(); ++i)
    if (takes({Actor::router, i})) finish(i);
}

void World::finish(std::uint32_t part) {
  Part& p = *parts_[part];
  if (p.lora.busy() || p.lora.waiting() > 0) broken("R9: the LoRA controller is not done, and nothing is left to do");
  const DeviceFacts f = p.router.facts();
  const bool lost = p.device_core.lost();
  if (f.in_flight > 0) broken("R8: " + std::to_string(f.in_flight) + " tickets are open, and nothing is left to do");
  if (!lost && !p.unsafe &&
      (f.free_blocks + f.cached_blocks != f.total_blocks || f.free_slots != f.total_slots || f.free_ring_slots != f.ring_slots))
    broken("R8: not everything came back: " + label(f));
  if (p.spill.files() > 0 || p.spill.bytes() > 0 || p.files->count() > 0)
    broken("R8: " + std::to_string(p.files->count()) + " saved states are left");
  recorder_.at_the_edge();
  Teardown teardown;
  const End edge{Actor::edge}, router{Actor::router, part};
  sent(edge, router, teardown);
  received(router, teardown);
  p.router.on(teardown, now_, p.router_out);
  bool told = false;
  for (const auto& item : p.router_out.items()) {
    const auto* down = std::get_if<TornDown>(&item);
    if (down == nullptr) continue;
    TornDown recorded = *down;
    sent(router, edge, recorded);
    told =
        down->facts.free_blocks == f.total_blocks && down->facts.free_slots == f.total_slots && down->facts.free_ring_slots == f.ring_slots;
  }
  if (!told) broken("R8: after teardown the pools are not whole");
  p.router_out.clear();
}

}  // namespace troupe::sim
