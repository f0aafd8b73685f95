// The host driver without announcements, as a CUDA driver is: its completions must be asked for.
#pragma once

#include <string>

#include "device/forwarding_driver.h"
#include "device/host/driver.h"

namespace troupe::test {

using device::ForwardingDriver;

class PollingDriver final : public ForwardingDriver {
 public:
  PollingDriver() : ForwardingDriver(device::make_host_driver()) {}
  std::string name() const override { return "polling"; }
  Result<void> notify_event(device::Event, device::Stream, device::Notify) override {
    return Error{ErrorCode::unsupported, "completions are polled here"};
  }
};

}  // namespace troupe::test
