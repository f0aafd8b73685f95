// What becomes of replicas: who makes and stops them, and how they are lost.
#include <algorithm>
#include <utility>

#include "tests/sim/world.h"

namespace troupe::sim {

std::optional<std::uint32_t> World::part_of(ReplicaRef ref) const {
  for (std::uint32_t i = 0; i < parts_.size(); ++i)
    if (parts_[i]->ref == ref) return i;
  return std::nullopt;
}

std::optional<std::uint32_t> World::living(std::uint32_t index) const {
  for (std::uint32_t i = 0; i < parts_.size(); ++i)
    if (parts_[i]->ref.index == index && takes({Actor::scheduler, i})) return i;
  return std::nullopt;
}

bool World::takes(End to) const { return to.actor < Actor::scheduler || (!parts_[to.part]->dead && !parts_[to.part]->frozen); }

// Of several replicas a start may fail; a stop that leaves something behind is one all the same.
void World::keep(const StartReplica& m) {
  if (part_of(m.replica)) broken("R5: " + label(m) + " was asked for twice");
  if (failed_starts_ < options_.failed_starts) {
    ++failed_starts_;
    return send({Actor::edge}, {Actor::dispatcher}, ReplicaDown{{}, m.replica, {ErrorCode::io_failed, "it did not start"}});
  }
  add_part(m.replica);
}

void World::keep(const StopReplica& m) {
  if (const auto part = part_of(m.replica)) parts_[*part]->dead = true;
  Error error;
  if (m.replica.incarnation % 3 == 0) error = {ErrorCode::device_lost, "something was abandoned"};
  send({Actor::edge}, {Actor::dispatcher}, ReplicaDown{{}, m.replica, std::move(error)});
}

void World::strike(std::uint32_t index, Blow blow) {
  const auto part = living(index);
  if (!part || options_.replicas == 0) return;
  Part& p = *parts_[*part];
  recorder_.at_the_edge();
  switch (blow) {
    case Blow::kill:  // who watches it is told
      p.dead = true;
      send({Actor::edge}, {Actor::dispatcher}, ReplicaLost{{}, p.ref, {ErrorCode::internal, "an actor died"}});
      break;
    case Blow::freeze:
      p.frozen = true;
      break;
    case Blow::cut:  // with it goes what was under way, in both directions
      p.dead = true;
      for (Queue& q : queues_) {
        const bool out = q.from.part == *part && q.from.actor >= Actor::scheduler && q.to.actor < Actor::scheduler;
        const bool in = q.to.part == *part && q.to.actor >= Actor::scheduler && q.from.actor < Actor::scheduler;
        if (out || in) q.messages.clear();
      }
      send({Actor::edge}, {Actor::dispatcher}, ReplicaLost{{}, p.ref, {ErrorCode::io_failed, "the link broke"}});
      break;
    case Blow::accuse:
      send({Actor::edge}, {Actor::dispatcher}, ReplicaLost{{}, p.ref, {ErrorCode::io_failed, "the link is silent"}});
      break;
    case Blow::slow:
      p.slow = 24;
      break;
  }
}

void World::drain_replica(std::uint32_t index) {
  recorder_.at_the_edge();
  send({Actor::edge}, {Actor::dispatcher}, DrainReplica{{}, ++questions_, index});
}

void World::undrain_replica(std::uint32_t index) {
  recorder_.at_the_edge();
  send({Actor::edge}, {Actor::dispatcher}, UndrainReplica{{}, ++questions_, index});
}

}  // namespace troupe::sim
