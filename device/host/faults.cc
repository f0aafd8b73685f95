#include "device/host/faults.h"

namespace troupe::device {

void Faults::inject(Fault fault) {
  if (fault.nth == 0 || fault.code == ErrorCode::none) return;
  const std::lock_guard lock(mutex_);
  faults_.push_back(fault);
  armed_.store(true, std::memory_order_release);
}

ErrorCode Faults::check(DriverCall call) {
  if (const ErrorCode lost = check(); lost != ErrorCode::none) return lost;
  if (!armed_.load(std::memory_order_acquire)) return ErrorCode::none;
  const std::lock_guard lock(mutex_);
  ErrorCode code = ErrorCode::none;
  for (std::size_t i = 0; i < faults_.size();) {
    Fault& fault = faults_[i];
    if (fault.call != call || --fault.nth != 0) {
      ++i;
      continue;
    }
    if (code == ErrorCode::none) code = fault.code;
    if (fault.sticky) lost_.store(fault.code, std::memory_order_release);
    faults_.erase(faults_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  if (faults_.empty()) armed_.store(false, std::memory_order_release);
  return code;
}

}  // namespace troupe::device
