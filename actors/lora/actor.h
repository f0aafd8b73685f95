// The LoRA controller's shell, on the control thread, and the loader: the thread that reads adapters and writes them into
// memory of the model that no step reads.
#pragma once

#include <memory>

#include "actors/lora/core.h"
#include "actors/wire.h"
#include "device/model.h"

namespace troupe::actors {

class LoraShell final : public Shell<LoraActor, LoraCore, LoraOutbox> {
 public:
  LoraShell(caf::actor_config& config, std::shared_ptr<Counts> counts, const LoraConfig& core, const ModelInfo& model)
      : Shell(config, Sender::lora, std::move(counts), core, model) {}
  const char* name() const override { return "lora"; }
  behavior_type make_behavior() override;

  void put(Admit&& m) { send_to(peers_->scheduler, std::move(m)); }
  void put(CancelRequest&& m) { send_to(peers_->scheduler, std::move(m)); }
  void put(Drain&& m) { send_to(peers_->scheduler, std::move(m)); }
  void put(LoraHold&& m) { send_to(peers_->scheduler, std::move(m)); }
  void put(LoraResume&& m) { send_to(peers_->scheduler, std::move(m)); }
  void put(Lora&& m) { send_to(peers_->router, std::move(m)); }
  void put(LoadAdapter&& m) { send_to(peers_->loader, std::move(m)); }
  void put(ReadAdapter&& m) { send_to(peers_->loader, std::move(m)); }
  void put(LoraBound&& m) { send_to(peers_->dispatcher, std::move(m)); }
  void put(AdapterFetched&& m) { send_to(peers_->dispatcher, std::move(m)); }
  void put(LoraAnswer&& m) { send_to(peers_->dispatcher, std::move(m)); }
  void put(SetTimer&& m) { timer_.set(m.at, *this, post_); }

 private:
  Timer timer_;
};

// Detached: a load takes as long as the file does. The model outlives it.
class LoaderShell final : public LoaderActor::base {
 public:
  LoaderShell(caf::actor_config& config, std::shared_ptr<Counts> counts, device::ModelDeviceFeed* model);
  const char* name() const override { return "loader"; }
  behavior_type make_behavior() override;
  void on_exit() override { peers_.reset(); }

 private:
  device::ModelDeviceFeed& model_;
  std::shared_ptr<const Peers> peers_;
  Post post_;
};

}  // namespace troupe::actors
