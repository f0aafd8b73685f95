#include "actors/keeper/actor.h"

#include <exception>
#include <string>
#include <utility>

namespace troupe::actors {
namespace {

// What a library throws while a model is loaded (memory, above all) is that start's error and nobody's end.
template <class F>
Result<void> caught(F&& f) {
  try {
    return f();
  } catch (const std::exception& e) {
    return Error{ErrorCode::internal, std::string("the replica could not be started: ") + e.what()};
  }
}

}  // namespace

KeeperShell::KeeperShell(caf::actor_config& config, KeeperSetup setup) : KeeperActor::base(config), setup_(std::move(setup)) {
  keep_quiet(*this);
}

KeeperShell::behavior_type KeeperShell::make_behavior() {
  return {
      [this](const StartReplica& m) { start(m.replica); },
      [this](const StopReplica& m) { stop(m.replica); },
  };
}

void KeeperShell::start(const ReplicaRef& replica) {
  ReplicaPlace& place = *setup_.place;
  Result<void> started = caught([&] { return place.open(replica.incarnation); });
  if (started) {
    started = caught([&] { return place.start(setup_.front, *setup_.home); });
    if (!started) (void)place.stop(started.error(), setup_.stop_limit);
  }
  if (started) {
    caf::anon_send(setup_.owner, joined(place));
  } else {
    caf::anon_send(setup_.owner, ReplicaDown{{}, replica, started.error()});
  }
}

void KeeperShell::stop(const ReplicaRef& replica) {
  const Result<void> stopped = setup_.place->stop(Error{ErrorCode::device_lost, "the replica is stopped"}, setup_.stop_limit);
  caf::anon_send(setup_.owner, ReplicaDown{{}, replica, stopped ? Error{} : stopped.error()});
}

Joined joined(const ReplicaPlace& place) {
  const Replica& replica = *place.replica();
  const Peers& p = *replica.peers();
  Joined out;
  out.up.replica = replica.ref();
  out.up.arithmetic_id = replica.info().arithmetic_id;
  if (p.lora) {
    out.doors.requests = p.lora;
    out.doors.lora = p.lora;
  } else {
    out.doors.requests = p.scheduler;
  }
  out.doors.scheduler = p.scheduler;
  const auto watch = [&](const auto&... actors) {
    ((actors ? out.watch.push_back(caf::actor_cast<caf::strong_actor_ptr>(actors)) : void()), ...);
  };
  watch(p.scheduler, p.router, p.sampler, p.stream, p.prefill_stream, p.copy_stream, p.device, p.spill, p.lora, p.loader);
  return out;
}

}  // namespace troupe::actors
