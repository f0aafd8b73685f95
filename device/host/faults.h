// Injected faults of a driver (Driver::inject), and its sticky state. Any thread; without a fault armed a check is two
// loads.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "device/driver.h"

namespace troupe::device {

class Faults {
 public:
  void inject(Fault fault);
  // The error of a call of this kind made now; none = go on. Counts the call.
  ErrorCode check(DriverCall call);
  // Calls that no fault can be aimed at: fail only once the device is lost.
  ErrorCode check() const { return lost_.load(std::memory_order_acquire); }
  // The device is lost for a reason that was not injected.
  void lose() { lost_.store(ErrorCode::device_lost, std::memory_order_release); }
  const std::atomic<ErrorCode>& lost() const { return lost_; }

 private:
  std::atomic<ErrorCode> lost_{ErrorCode::none};
  std::atomic<bool> armed_{false};
  std::mutex mutex_;
  std::vector<Fault> faults_;  // nth counts down
};

}  // namespace troupe::device
