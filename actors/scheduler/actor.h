// The scheduler's shell: messages in, core, messages out. On the control thread.
#pragma once

#include <memory>

#include "actors/scheduler/core.h"
#include "actors/wire.h"

namespace troupe::actors {

class SchedulerShell final : public Shell<SchedulerActor, SchedulerCore, SchedulerOutbox> {
 public:
  SchedulerShell(caf::actor_config& config, std::shared_ptr<Counts> counts, const SchedulerConfig& core, const ModelInfo& model)
      : Shell(config, Sender::scheduler, std::move(counts), core, model) {}
  const char* name() const override { return "scheduler"; }
  behavior_type make_behavior() override;

  void put(Open&& m) { send_to(peers_->router, std::move(m)); }
  void put(Launch&& m) { send_to(peers_->router, std::move(m)); }
  void put(Apply&& m) { send_to(peers_->router, std::move(m)); }
  void put(Sample&& m) { send_to(peers_->sampler, std::move(m)); }
  void put(Deliver&& m) { send_to(peers_->delivery, std::move(m)); }
  void put(Ended&& m) { send_to(peers_->dispatcher, std::move(m)); }
  void put(ReplicaLost&& m) { send_to(peers_->dispatcher, std::move(m)); }
  void put(ReplicaReport&& m) { send_to(peers_->dispatcher, std::move(m)); }
  void put(CancelReply&& m) { send_to(peers_->dispatcher, std::move(m)); }
  void put(Drained&& m) { send_to(peers_->dispatcher, std::move(m)); }
  void put(DropState&& m) { send_to(peers_->spill, std::move(m)); }
  void put(SetTimer&& m) { timer_.set(m.at, *this, post_); }

 private:
  Timer timer_;
  TimeNs busy_since_ = 0;
};

}  // namespace troupe::actors
