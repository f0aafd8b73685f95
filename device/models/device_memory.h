// Memory of a device that goes back to its driver with its owner. The thread rules are the driver's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "device/driver.h"
#include "messages/error.h"

namespace troupe::device {

// Addresses of a device whose memory the host can reach.
template <class T>
T* at(DevicePtr p) {
  return reinterpret_cast<T*>(static_cast<std::uintptr_t>(p));
}
template <class T>
DevicePtr address(const T* p) {
  return static_cast<DevicePtr>(reinterpret_cast<std::uintptr_t>(p));
}

class DeviceMemory {
 public:
  explicit DeviceMemory(Driver& driver) : driver_(driver) {}
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() {
    for (const auto& [ptr, bytes] : blocks_) (void)driver_.free_device(ptr, bytes);
  }
  // n zeroed elements. Error: what alloc_device answers.
  template <class T>
  Result<T*> get(std::size_t n) {
    const std::size_t bytes = std::max<std::size_t>(n * sizeof(T), 64);
    TROUPE_TRY(auto ptr, driver_.alloc_device(bytes));
    blocks_.emplace_back(ptr, bytes);
    return at<T>(ptr);
  }

 private:
  Driver& driver_;
  std::vector<std::pair<DevicePtr, std::size_t>> blocks_;
};

}  // namespace troupe::device
