// The stream actor of the prefill stream: the only one that enqueues on it (R12). Chunks of prompts run there, beside the steps of the
// compute stream, which have no sequence in common with them: the router sees to it, so nothing waits for the other stream. It has a
// feed of the model of its own (ModelDeviceFeed::prefill_feed). Its thread is as the compute stream's actor's.
#pragma once

#include <memory>

#include "actors/stream/steps.h"
#include "actors/wire.h"
#include "device/model.h"

namespace troupe::actors {

class PrefillStreamShell final : public AtHome<PrefillStreamActor> {
 public:
  // Driver and feed outlive the actor. Of the ring's slots the last `prefill_slots` are its own.
  PrefillStreamShell(caf::actor_config& config, std::shared_ptr<Counts> counts, device::Driver* driver, device::ModelDeviceFeed* feed,
                     std::uint32_t ring_slots, std::uint32_t prefill_slots);
  const char* name() const override { return "prefill_stream"; }
  behavior_type make_behavior() override;
  void on_exit() override { peers_.reset(); }

 private:
  Announcer announcer_;
  Steps steps_;
  std::shared_ptr<const Peers> peers_;
  Post post_;
};

}  // namespace troupe::actors
