// The stream actor of the compute stream: the only one that enqueues on it (R12). It turns a LaunchedStep into the
// model's view of it, has the model enqueue the forward pass and the readback, asks the driver to announce the event,
// and tells the device actor to watch. On the host it lives on the control thread, since the driver's own thread
// computes; where the driver runs kernels, on a thread of its own, since launching them takes its time.
//
// A step's view points into its LaunchedStep, so that is kept until its ring slot is used again: by then the router
// has seen the step settle (R4). That is also when the model hears fed_step_settled; at stop it hears it for the rest.
//
// Copies of KV blocks go the same way, in the same order, unless they have a stream of their own (copy_actor.h); then this actor
// records the events that they wait for, behind what is on its stream, and says when one is recorded (R12).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "actors/stream/copies.h"
#include "actors/wire.h"
#include "device/model.h"

namespace troupe::actors {

struct StreamSetup {
  device::Driver* driver = nullptr;         // both outlive the actor
  device::ModelDeviceFeed* model = nullptr;
  std::uint32_t ring_slots = 2;
  std::uint32_t copy_places = 0;
};

class StreamShell final : public AtHome<StreamActor> {
 public:
  StreamShell(caf::actor_config& config, std::shared_ptr<Counts> counts, const StreamSetup& setup);
  const char* name() const override { return "stream"; }
  behavior_type make_behavior() override;
  void on_exit() override;

 private:
  struct Slot : Announced {  // of the ring
    using Announced::Announced;
    Shared<LaunchedStep> step;
    std::vector<Shared<LaunchedStep>> orphans;  // that the stream passes before this step
    bool enqueued = false;
  };

  void enqueue(const Enqueue& m);
  void change(const ChangeTable& m);
  Result<void> bind();
  Result<void> enqueue(const LaunchedStep& step, Slot& slot);
  bool mark_end(const LaunchedStep& step, Slot& slot);
  void enqueue(const CopyBlocks& m);
  void record(const RecordEvent& m);
  void settle(Slot& slot);
  void settle_all();

  device::Driver& driver_;
  device::ModelDeviceFeed& model_;
  Announcer announcer_;
  Copies copies_;
  std::shared_ptr<const Peers> peers_;
  Post post_;
  device::Stream stream_ = 0;
  bool bound_ = false;  // this actor's thread, to the device
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<device::DevicePtr> cells_;  // by ring slot; steps in flight read it, so it never changes
  // Steps whose enqueueing failed half-way, and no event could be recorded behind it. They wait for the next step that has one.
  std::vector<Shared<LaunchedStep>> orphans_;
};

}  // namespace troupe::actors
