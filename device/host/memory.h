// Memory of the host driver: zeroed, 64-byte aligned, and counted. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "messages/error.h"

namespace troupe::device {

class HostMemory {
 public:
  HostMemory() = default;
  ~HostMemory();
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  Result<void*> alloc(std::size_t bytes);           // device_failed: the machine has no more
  Result<void> free(void* ptr, std::size_t bytes);  // device_failed: not alive, or of another size
  std::uint64_t bytes() const;
  std::size_t count() const;  // of areas

 private:
  mutable std::mutex mutex_;
  std::map<void*, std::size_t> alive_;
  std::uint64_t bytes_ = 0;
};

}  // namespace troupe::device
