// The stream actor of the compute stream: the only one that enqueues on it (R12), steps as steps.h says. It tells the device actor to
// watch. On the host it lives on the control thread, since the driver's own thread
// computes; where the driver runs kernels, on a thread of its own, since launching them takes its time.
//
// Copies of KV blocks go the same way, in the same order, unless they have a stream of their own (copy_actor.h); then this actor
// records the events that they wait for, behind what is on its stream, and says when one is recorded (R12).
#pragma once

#include <cstdint>
#include <memory>

#include "actors/stream/copies.h"
#include "actors/stream/steps.h"
#include "actors/wire.h"
#include "device/model.h"

namespace troupe::actors {

struct StreamSetup {
  device::Driver* driver = nullptr;  // both outlive the actor
  device::ModelDeviceFeed* model = nullptr;
  std::uint32_t ring_slots = 2;
  std::uint32_t copy_places = 0;
  std::uint32_t prefill_slots = 0;  // of ring_slots the last, which are another stream's; 0: no other stream has steps
};

class StreamShell final : public AtHome<StreamActor> {
 public:
  StreamShell(caf::actor_config& config, std::shared_ptr<Counts> counts, const StreamSetup& setup);
  const char* name() const override { return "stream"; }
  behavior_type make_behavior() override;
  void on_exit() override;

 private:
  void change(const ChangeTable& m);
  void enqueue(const CopyBlocks& m);
  void record(const RecordEvent& m);

  device::Driver& driver_;
  device::ModelDeviceFeed& model_;
  Announcer announcer_;
  Steps steps_;
  Copies copies_;
  std::shared_ptr<const Peers> peers_;
  Post post_;
};

}  // namespace troupe::actors
