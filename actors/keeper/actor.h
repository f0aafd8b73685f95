// The keeper of one place: makes and stops its replica's lives when the dispatcher says so. A detached actor: loading a model
// takes as long as its files do, and a busy device as long as it is patient.
#pragma once

#include <chrono>
#include <memory>

#include "actors/replica/place.h"
#include "actors/wire.h"

namespace troupe::actors {

struct KeeperSetup {
  ReplicaPlace* place = nullptr;  // the keeper's, from its first message until it has ended; outlives it
  Front front;
  OwnerDoor owner;
  Home* home = nullptr;  // of the replica's actors
  std::chrono::nanoseconds stop_limit{};
};

class KeeperShell final : public KeeperActor::base {
 public:
  KeeperShell(caf::actor_config& config, KeeperSetup setup);
  const char* name() const override { return "keeper"; }
  behavior_type make_behavior() override;
  void on_exit() override { setup_ = {}; }

 private:
  void start(const ReplicaRef& replica);
  void stop(const ReplicaRef& replica);

  KeeperSetup setup_;
};

// What the dispatcher is told of a replica that is up.
Joined joined(const ReplicaPlace& place);

}  // namespace troupe::actors
