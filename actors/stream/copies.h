// Copies of KV blocks and recurrent states on a stream, by the actor that owns it: the compute stream's, or the copy stream's (R12).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "actors/stream/announcer.h"
#include "device/model.h"

namespace troupe::actors {

class Copies {
 public:
  // Places are numbered after the ring's slots.
  Copies(device::Driver& driver, device::ModelDeviceFeed& model, std::shared_ptr<Counts> counts, std::uint32_t ring_slots,
         std::uint32_t places);
  void attach(const DeviceActor& device);

  // Has the stream wait for what the copy is to wait for, then the model enqueue it, and its event follow; what the device actor is
  // to watch. `bound`: whether this thread is bound to the device. Of an error's phase: launch, nothing is on the stream; forward,
  // the copy may be, and no event says when it is over.
  Watch enqueue(const CopyBlocks& m, device::Stream stream, const Result<void>& bound, std::uint64_t cause, Announcer& announcer);

 private:
  Result<void> put(const CopyBlocks& m, device::Stream stream);

  device::Driver& driver_;
  device::ModelDeviceFeed& model_;
  const std::uint32_t ring_slots_;
  std::vector<std::unique_ptr<Announced>> places_;
};

}  // namespace troupe::actors
