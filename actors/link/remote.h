// The actor that stands for a replica on another machine: to the dispatcher it is the replica's keeper, scheduler and LoRA
// controller at once. Lives on the front's control thread; its connections on the transport's.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "actors/link/remote_core.h"
#include "actors/link/wire.h"

namespace troupe::actors::link {

using RemoteActor = caf::typed_actor<caf::reacts_to<StartReplica>, caf::reacts_to<StopReplica>, caf::reacts_to<Admit>,
                                     caf::reacts_to<CancelRequest>, caf::reacts_to<Drain>, caf::reacts_to<LoraSubmit>,
                                     caf::reacts_to<FetchAdapter>, caf::reacts_to<Ended>, caf::reacts_to<Halt>, caf::reacts_to<AskReport>,
                                     caf::reacts_to<LinkUp>, caf::reacts_to<LinkSaid>, caf::reacts_to<LinkDown>, caf::reacts_to<Tick>>;

struct RemoteSetup {
  std::shared_ptr<Io> io;  // stopped before the actor system ends
  HostPort node;
  RemoteConfig core;
  FrontDoor dispatcher;
  OwnerDoor owner;  // the dispatcher too
  DeliveryDoor delivery;
};

class RemoteShell final : public Shell<RemoteActor, RemoteCore, RemoteOutbox> {
 public:
  RemoteShell(caf::actor_config& config, std::shared_ptr<Counts> counts, const RemoteSetup& setup)
      : Shell(config, Sender::scheduler, std::move(counts), setup.core), setup_(setup) {}
  const char* name() const override { return "remote"; }
  behavior_type make_behavior() override;
  void on_exit() override;

  void put(Connect&& m);
  void put(Disconnect&& m) { wires_.disconnect(m); }
  void put(Transmit&& m) { wires_.transmit(m); }
  void put(ReplicaUp&& m);
  void put(ReplicaDown&& m) { send_to(setup_.owner, std::move(m)); }
  void put(Deliver&& m) { send_to(setup_.delivery, std::move(m)); }
  void put(SetTimer&& m) { timer_.set(m.at, *this, post_); }
  template <class M>
  void put(M&& m) {
    send_to(setup_.dispatcher, std::forward<M>(m));
  }  // the others

 private:
  RemoteSetup setup_;
  Wires wires_;
  Timer timer_;
};

}  // namespace troupe::actors::link
