// Steps on a stream, by the actor that owns it: the compute stream's, or the prefill stream's (R12). It turns a LaunchedStep into the
// model's view of it, has the model enqueue the forward pass and the readback, and asks the driver to announce the event; what the
// device actor is to watch is the answer.
//
// A step's view points into its LaunchedStep, so that is kept until its ring slot is used again: by then the router
// has seen the step settle (R4). That is also when the model hears fed_step_settled; at stop it hears it for the rest.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "actors/stream/announcer.h"
#include "device/model.h"

namespace troupe::actors {

class Steps {
 public:
  // With the ring slots [first_slot, first_slot + n_slots). `alone`: steps of no other stream run beside these. If they do, a step that
  // failed half-way, and no event could be recorded behind, is the end of the device: nothing says when what is on the stream is over, and
  // no order keeps it from the others' blocks.
  Steps(device::Driver& driver, device::ModelDeviceFeed& model, std::shared_ptr<Counts> counts, std::uint32_t first_slot,
        std::uint32_t n_slots, bool alone);
  void attach(const DeviceActor& device);
  void attach(device::Stream stream, std::vector<device::DevicePtr> cells);

  // Binds this thread to the device, once. Nothing is enqueued by a thread that is not bound: it would be on another device.
  Result<void> bind();
  Watch enqueue(const Enqueue& m, std::uint64_t cause, Announcer& announcer);
  void settle_all();
  device::Stream stream() const { return stream_; }

 private:
  struct Slot : Announced {  // of the ring
    using Announced::Announced;
    Shared<LaunchedStep> step;
    std::vector<Shared<LaunchedStep>> orphans;  // that the stream passes before this step
    bool enqueued = false;
  };

  Result<void> put(const LaunchedStep& step, Slot& slot, Announcer& announcer);
  bool mark_end(const LaunchedStep& step, Slot& slot, Announcer& announcer);
  void settle(Slot& slot);

  device::Driver& driver_;
  device::ModelDeviceFeed& model_;
  const std::uint32_t first_slot_;
  const bool alone_;
  device::Stream stream_ = 0;
  bool bound_ = false;                        // this actor's thread, to the device
  std::vector<std::unique_ptr<Slot>> slots_;  // from first_slot_ on
  std::vector<device::DevicePtr> cells_;      // by ring slot; steps in flight read it, so it never changes
  // Steps whose enqueueing failed half-way, and no event could be recorded behind it. They wait for the next step that has one.
  std::vector<Shared<LaunchedStep>> orphans_;
};

}  // namespace troupe::actors
