// The device actor's decisions: when a ring slot may be read. A step is read once both its watch (the step is on the
// stream) and its event's completion have arrived, in either order. A step that stays incomplete for longer than
// `step_timeout` makes the device lost (R7): every watched and later step is answered device_lost. So does a step that
// reports device_lost.
//
// Every ticket is answered with one ReadSlot, in the order of the tickets (the stream's): a step that could not even be
// enqueued waits for the steps before it, since who applies the results does so in order; one whose enqueueing failed half-way
// waits for its event too, which was recorded all the same (R4). A watch or a completion that comes twice, or late, is counted and dropped;
// a watch of a slot that is still watched for another ticket is answered `internal`, and the slot keeps its step (R4).
//
// Copies of KV blocks are watched alike, in slots that follow the ring's, numbered apart from steps and answered by one
// CopyDone each. Of the ring's slots the last `prefill_slots` are for steps of the prefill stream: they are answered in the order of
// their tickets too, apart from the others.
//
// Deterministic; one thread at a time (the device actor's).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "actors/outbox.h"
#include "messages/protocol.h"

namespace troupe::actors {

using DeviceOutbox = Outbox<ReadSlot, SetTimer, CopyDone>;

class DeviceCore {
 public:
  // Timeout 0 = none.
  DeviceCore(std::uint32_t ring_slots, TimeNs step_timeout, std::uint32_t copy_places = 0, std::uint32_t prefill_slots = 0);
  ~DeviceCore();

  void on(const Watch& m, TimeNs now, DeviceOutbox& out);
  void on(const EventDone& m, TimeNs now, DeviceOutbox& out);
  void on(const Tick& m, TimeNs now, DeviceOutbox& out);

  std::uint32_t watched() const;  // steps and copies whose completion is awaited
  bool lost() const;
  std::uint64_t ignored() const;  // messages counted and dropped

 private:
  struct State;
  std::unique_ptr<State> s_;
};

}  // namespace troupe::actors
