// How a completion becomes a message: where the driver announces events, its thread sends EventDone to the device actor; where it
// does not (CUDA), the device actor is told, once, to ask.
#pragma once

#include <cstdint>
#include <memory>

#include "actors/wire.h"
#include "device/driver.h"

namespace troupe::actors {

// A slot of the ring, or a place for copies. The driver's thread uses it from the moment ask() returns until it has sent EventDone;
// the stream actor at any other time. The ring's rules keep the two apart.
struct Announced {
  Announced(std::shared_ptr<Counts> counts, std::uint32_t index)
      : post(Sender::driver, std::move(counts), static_cast<std::uint16_t>(index)), ring_slot(index) {}
  Post post;
  DeviceActor device;
  Ticket ticket;
  std::uint32_t ring_slot;
};

// A stream actor's, on its thread.
class Announcer {
 public:
  explicit Announcer(device::Driver& driver) : driver_(driver) {}

  // `event` is recorded on `stream`: EventDone of to.ticket follows when it completes.
  Result<void> ask(device::Event event, device::Stream stream, Announced& to);

 private:
  static void announce(void* context, device::Event event, ErrorCode status);

  device::Driver& driver_;
  bool polled_ = false;  // the driver announces nothing
};

}  // namespace troupe::actors
