// The spill actor's shell. Detached: files are read and written on a thread of its own, never on the control thread.
#pragma once

#include <memory>

#include "actors/spill/core.h"
#include "actors/wire.h"

namespace troupe::actors {

class SpillShell final : public Shell<SpillActor, SpillCore, SpillOutbox> {
 public:
  SpillShell(caf::actor_config& config, std::shared_ptr<Counts> counts, const SpillConfig& core, const ModelInfo& model,
             std::shared_ptr<StateFiles> files)
      : Shell(config, Sender::spill, std::move(counts), core, model, std::move(files)) {}
  const char* name() const override { return "spill"; }
  behavior_type make_behavior() override;
  void on_exit() override;

  void put(StateWritten&& m) { send_to(peers_->router, std::move(m)); }
  void put(StateRead&& m) { send_to(peers_->router, std::move(m)); }
};

}  // namespace troupe::actors
