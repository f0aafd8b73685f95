// The router's shell: messages in, core, messages out. On the control thread.
#pragma once

#include <memory>
#include <vector>

#include "actors/router/core.h"
#include "actors/wire.h"

namespace troupe::actors {

class RouterShell final : public Shell<RouterActor, RouterCore, RouterOutbox> {
 public:
  RouterShell(caf::actor_config& config, std::shared_ptr<Counts> counts, const RouterConfig& core, const ModelInfo& model)
      : Shell(config, Sender::router, std::move(counts), core, model) {}
  const char* name() const override { return "router"; }
  behavior_type make_behavior() override;
  void on_exit() override;

  void put(Opened&& m) { send_to(peers_->scheduler, std::move(m)); }
  void put(Accepted&& m) { send_to(peers_->scheduler, std::move(m)); }
  void put(Settled&& m) { send_to(peers_->scheduler, std::move(m)); }
  void put(Applied&& m) { send_to(peers_->scheduler, std::move(m)); }
  void put(Enqueue&& m);
  void put(LoraReply&& m) { send_to(peers_->lora, std::move(m)); }
  void put(ChangeTable&& m) { send_to(peers_->stream, std::move(m)); }
  void put(Saved&& m) { send_to(peers_->scheduler, std::move(m)); }
  void put(RecordEvent&& m) { send_to(peers_->stream, std::move(m)); }
  void put(CopyBlocks&& m);
  void put(WriteState&& m) { send_to(peers_->spill, std::move(m)); }
  void put(ReadState&& m) { send_to(peers_->spill, std::move(m)); }
  void put(DropState&& m) { send_to(peers_->spill, std::move(m)); }
  void put(TornDown&& m);

 private:
  std::vector<Answer<TornDown>> teardowns_;
};

}  // namespace troupe::actors
