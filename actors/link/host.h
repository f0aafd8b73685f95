// The actor that has a replica for the runtimes that come over links: to the replica it is the dispatcher and delivery, to its
// keeper the dispatcher. On the replica's control thread; its connections on the transport's.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "actors/link/host_core.h"
#include "actors/link/wire.h"

namespace troupe::actors::link {

struct KeptBy {  // once, at start
  MakerDoor keeper;
};

}  // namespace troupe::actors::link

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::link::KeptBy)

namespace troupe::actors::link {

using HostActor =
    caf::typed_actor<caf::reacts_to<Deliver>, caf::reacts_to<Ended>, caf::reacts_to<CancelReply>, caf::reacts_to<Drained>,
                     caf::reacts_to<LoraAnswer>, caf::reacts_to<LoraBound>, caf::reacts_to<AdapterFetched>, caf::reacts_to<ReplicaLost>,
                     caf::reacts_to<ReplicaReport>, caf::reacts_to<Joined>, caf::reacts_to<ReplicaDown>, caf::reacts_to<LinkUp>,
                     caf::reacts_to<LinkSaid>, caf::reacts_to<LinkDown>, caf::reacts_to<Tick>, caf::reacts_to<KeptBy>>;

class HostShell final : public Shell<HostActor, HostCore, HostOutbox> {
 public:
  HostShell(caf::actor_config& config, std::shared_ptr<Counts> counts, const HostConfig& core)
      : Shell(config, Sender::dispatcher, std::move(counts), core) {}
  const char* name() const override { return "host"; }
  behavior_type make_behavior() override;
  void on_exit() override;

  void put(Disconnect&& m) { wires_.disconnect(m); }
  void put(Transmit&& m);
  void put(Admit&& m) { send_to(doors_.requests, std::move(m)); }
  void put(CancelRequest&& m) { send_to(doors_.requests, std::move(m)); }
  void put(LoraSubmit&& m) { send_to(doors_.lora, std::move(m)); }
  void put(FetchAdapter&& m) { send_to(doors_.lora, std::move(m)); }
  void put(Ended&& m) { send_to(doors_.lora, std::move(m)); }
  void put(AskReport&& m) { send_to(doors_.scheduler, std::move(m)); }
  void put(StopReplica&& m) { send_to(keeper_, std::move(m)); }
  void put(StartReplica&& m) { send_to(keeper_, std::move(m)); }
  void put(SetTimer&& m) { timer_.set(m.at, *this, post_); }

 private:
  void join(const Joined& m);
  void down(const caf::down_msg& m);

  ReplicaDoors doors_;
  MakerDoor keeper_;
  ReplicaRef ref_;                        // of the replica that joined last
  std::vector<caf::actor_addr> watched_;  // its actors
  Wires wires_;
  Timer timer_;
};

}  // namespace troupe::actors::link
