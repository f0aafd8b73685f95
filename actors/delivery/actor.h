// Calls the clients back. A detached actor: its thread is the delivery thread, so that a slow callback holds up other
// callbacks and never a step. Each token and each end reaches its callback once; what comes after the end is dropped (R5).
#pragma once

#include <map>
#include <memory>

#include "actors/wire.h"

namespace troupe::actors {

class DeliveryShell final : public DeliveryActor::base {
 public:
  explicit DeliveryShell(caf::actor_config& config);
  const char* name() const override { return "delivery"; }
  behavior_type make_behavior() override;
  void on_exit() override { open_.clear(); }

 private:
  void deliver(const TokenBatch& batch);
  void end_all(const Error& error);

  std::map<RequestId, std::shared_ptr<Callback>> open_;
};

}  // namespace troupe::actors
