#include "actors/stream/announcer.h"

#include <string>
#include <utility>

namespace troupe::actors {

Result<void> Announcer::ask(device::Event event, device::Stream stream, Announced& to) {
  if (polled_) return success();
  const Result<void> asked = driver_.notify_event(event, stream, {&Announcer::announce, &to});
  if (asked || asked.error().code != ErrorCode::unsupported) return asked;
  polled_ = true;
  caf::anon_send(to.device, PollEvents{});
  return success();
}

// On a thread of the driver.
void Announcer::announce(void* context, device::Event, ErrorCode status) {
  Announced& to = *static_cast<Announced*>(context);
  EventDone m;
  m.ticket = to.ticket;
  m.ring_slot = to.ring_slot;
  if (status != ErrorCode::none) {
    m.error = DeviceError{DeviceError::Phase::readback, status, 0, 0,
                          std::string("the device failed while it ran this: ") + troupe::name(status)};
  }
  to.post.send(to.device, std::move(m), nullptr);
}

}  // namespace troupe::actors
