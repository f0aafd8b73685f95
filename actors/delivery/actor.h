// Calls the clients back. A detached actor: its thread is the delivery thread, so that a slow callback holds up other
// callbacks and never a step. Each token and each end reaches its callback once; what comes after the end is dropped (R5).
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <thread>

#include "actors/wire.h"

namespace troupe::actors {

// Which thread calls back, once it has begun to: calls that wait for it must not be made there.
struct DeliveryThread {
  std::atomic<std::thread::id> id{};
};

class DeliveryShell final : public DeliveryActor::base {
 public:
  DeliveryShell(caf::actor_config& config, std::shared_ptr<Counts> counts, std::shared_ptr<DeliveryThread> thread);
  const char* name() const override { return "delivery"; }
  behavior_type make_behavior() override;
  void on_exit() override { open_.clear(); }

 private:
  void deliver(const TokenBatch& batch);
  void end_all(const Error& error);

  Post post_;
  std::shared_ptr<DeliveryThread> thread_;
  std::map<RequestId, std::shared_ptr<Callback>> open_;
};

}  // namespace troupe::actors
