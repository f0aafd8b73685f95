#include "actors/sampler/actor.h"

namespace troupe::actors {

SamplerShell::behavior_type SamplerShell::make_behavior() {
  return {
      [this](const Attach& m) { peers_ = m.peers; },
      [this](const Sample& m) { handle(this, m); },
  };
}

}  // namespace troupe::actors
