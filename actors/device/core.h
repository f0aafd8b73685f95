// The device actor's decisions: when a ring slot may be read. A step is read once both its watch (the step is on the
// stream) and its event's completion have arrived, in either order. A step that stays incomplete for longer than
// `step_timeout` makes the device lost (R7): every watched and later step is answered device_lost.
//
// Deterministic; one thread at a time (the device actor's).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "actors/outbox.h"
#include "messages/protocol.h"

namespace troupe::actors {

using DeviceOutbox = Outbox<ReadSlot, SetTimer>;

class DeviceCore {
 public:
  DeviceCore(std::uint32_t ring_slots, TimeNs step_timeout);
  ~DeviceCore();

  void on(const Watch& m, TimeNs now, DeviceOutbox& out);
  void on(const EventDone& m, TimeNs now, DeviceOutbox& out);
  void on(const Tick& m, TimeNs now, DeviceOutbox& out);

  // Tickets whose events are to be polled (CUDA), oldest first.
  std::uint32_t watched() const;
  bool lost() const;

 private:
  struct State;
  std::unique_ptr<State> s_;
};

}  // namespace troupe::actors
