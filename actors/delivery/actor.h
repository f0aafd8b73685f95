// Calls the clients back. A detached actor: its thread is the delivery thread, so that a slow callback holds up other
// callbacks and never a step. Each token and each end reaches its callback once; what comes after the end is dropped (R5).
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string_view>
#include <thread>

#include "actors/delivery/core.h"
#include "actors/wire.h"

namespace troupe::actors {

// Which thread calls back, once it has begun to: calls that wait for it must not be made there.
struct DeliveryThread {
  std::atomic<std::thread::id> id{};
};

class DeliveryShell final : public Shell<DeliveryActor, DeliveryCore, DeliveryOutbox> {
 public:
  DeliveryShell(caf::actor_config& config, std::shared_ptr<Counts> counts, const DeliveryConfig& core,
                std::shared_ptr<DeliveryThread> thread);
  const char* name() const override { return "delivery"; }
  behavior_type make_behavior() override;
  void on_exit() override;
  void put(Delivered&& m) { send_to(front_->dispatcher, std::move(m)); }
  void put(Reclaimed&& m) { send_to(front_->dispatcher, std::move(m)); }

 private:
  void deliver(const TokenBatch& batch);
  void end(const Finish& finish, std::string_view text);
  void end_all(const Error& error);

  std::shared_ptr<const Doors> front_;
  std::shared_ptr<DeliveryThread> thread_;
  std::map<RequestId, std::shared_ptr<Callback>> open_;
};

}  // namespace troupe::actors
