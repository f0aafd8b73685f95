// The sampler's shell. Detached: sampling a large vocabulary takes longer than a handler on the control thread may.
#pragma once

#include <memory>

#include "actors/sampler/core.h"
#include "actors/wire.h"

namespace troupe::actors {

class SamplerShell final : public Shell<SamplerActor, SamplerCore, SamplerOutbox> {
 public:
  SamplerShell(caf::actor_config& config, std::shared_ptr<Counts> counts, std::uint32_t vocab_size)
      : Shell(config, Sender::sampler, std::move(counts), vocab_size) {}
  const char* name() const override { return "sampler"; }
  behavior_type make_behavior() override;

  void put(Sampled&& m) { send_to(peers_->scheduler, std::move(m)); }
};

}  // namespace troupe::actors
