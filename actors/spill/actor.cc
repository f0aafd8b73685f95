#include "actors/spill/actor.h"

namespace troupe::actors {

SpillShell::behavior_type SpillShell::make_behavior() {
  return {
      [this](const Attach& m) { peers_ = m.peers; },
      [this](const WriteState& m) { handle(this, m); },
      [this](const ReadState& m) { handle(this, m); },
      [this](const DropState& m) { handle(this, m); },
  };
}

void SpillShell::on_exit() {
  core_.clear();
  Shell::on_exit();
}

}  // namespace troupe::actors
