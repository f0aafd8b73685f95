#include <algorithm>
#include <random>

#include "tests/sim/scenario.h"

namespace troupe::sim {
namespace {

// What only the first lives have.
SimDeviceOptions whole(SimDeviceOptions d) {
  d.fail_steps.clear(), d.fail_late.clear(), d.event_errors.clear(), d.readback_errors.clear(), d.enqueue_errors.clear();
  d.half_enqueued.clear(), d.nan_rows.clear(), d.copy_errors.clear(), d.copy_refused.clear(), d.copy_half.clear();
  d.hang_at = d.lose_at = 0;
  return d;
}

}  // namespace

Scenario make_replica_scenario(std::uint64_t seed, bool lora, std::uint32_t replicas) {
  Scenario s = lora ? make_lora_scenario(seed) : make_scenario(seed);
  std::mt19937_64 random(seed * 0x9E6C63D0876A9A47u + 11);
  const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  const auto one_in = [&](std::uint32_t n) { return below(n) == 0; };
  WorldOptions& w = s.world;
  w.replicas = one_in(8) ? 1 : 2 + below(3);
  if (replicas != 0) w.replicas = replicas;
  for (std::uint32_t i = 0; i < w.replicas; ++i) {
    SimDeviceOptions d = one_in(2) ? w.device : whole(w.device);
    if (one_in(4)) (one_in(3) ? d.hang_at : d.lose_at) = 1 + below(20);
    w.devices.push_back(std::move(d));
    if (one_in(8)) w.arithmetic.resize(i + 1, "sim"), w.arithmetic[i] = "other";
  }
  w.device = whole(w.device);
  if (one_in(3)) w.link_lag = 2 + below(6);
  if (one_in(4)) w.failed_starts = 1 + below(3);
  if (one_in(4)) w.max_restarts = below(3);
  if (one_in(8)) w.max_moves = below(3);
  w.placement.policy = static_cast<actors::PlacementPolicy>(one_in(2) ? 0 : below(3));
  w.placement.affinity_bound = one_in(3) ? 0 : below(80);
  w.placement.affinity_blocks = 1 + below(40);
  for (Request& q : s.requests)
    if (one_in(2)) q.stop.max_tokens += below(20);
  if (lora) {
    for (ClientEvent& e : s.events) {
      if (e.kind != ClientEvent::Kind::lora) continue;
      if (one_in(4)) e.command.replica = "sim:" + std::to_string(below(w.replicas + 1));
      e.command.roll_back = one_in(3);
      e.command.peer = "sim:" + std::to_string(below(w.replicas));
      e.command.adapter = one_in(2) ? "" : std::string(1, static_cast<char>('a' + below(4)));
    }
  }
  using Kind = ClientEvent::Kind;
  const auto add = [&](Kind kind, std::uint32_t replica, World::Blow blow = World::Blow::kill) {
    ClientEvent e;
    e.kind = kind;
    e.after = one_in(4) ? 0 : below(140);
    e.replica = replica;
    e.blow = blow;
    s.events.insert(s.events.begin() + 1 + below(static_cast<std::uint32_t>(s.events.size())), std::move(e));
  };
  for (std::uint32_t n = below(5); n > 0; --n) add(Kind::strike, below(w.replicas), static_cast<World::Blow>(below(World::kBlows)));
  for (std::uint32_t n = one_in(3) ? 1 + below(2) : 0; n > 0; --n) {
    const std::uint32_t replica = below(w.replicas);
    add(Kind::drain_replica, replica);
    if (!one_in(3)) {
      ClientEvent e;
      e.kind = Kind::undrain_replica;
      e.after = below(200);
      e.replica = one_in(4) ? below(w.replicas + 1) : replica;
      s.events.push_back(std::move(e));
    }
  }
  return s;
}

}  // namespace troupe::sim
