// What a driver gave out: addresses with their sizes. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "messages/error.h"

namespace troupe::device {

class CudaAllocations {
 public:
  void add(void* ptr, std::size_t bytes);
  // device_failed: not alive, or of another size. From then on it counts as gone.
  Result<void> take(void* ptr, std::size_t bytes);
  std::uint64_t bytes() const;
  std::size_t count() const;
  std::vector<void*> all() const;

 private:
  mutable std::mutex mutex_;
  std::map<void*, std::size_t> alive_;
  std::uint64_t bytes_ = 0;
};

}  // namespace troupe::device
