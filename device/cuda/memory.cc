#include "device/cuda/memory.h"

#include <fmt/format.h>

namespace troupe::device {

void CudaAllocations::add(void* ptr, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  alive_.emplace(ptr, bytes);
  bytes_ += bytes;
}

Result<void> CudaAllocations::take(void* ptr, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto it = alive_.find(ptr);
  if (it == alive_.end()) {
    return Error{ErrorCode::device_failed, "free of memory that this driver did not give out, or that was freed before"};
  }
  if (it->second != bytes)
    return Error{ErrorCode::device_failed, fmt::format("free of {} bytes where {} were given out", bytes, it->second)};
  alive_.erase(it);
  bytes_ -= bytes;
  return success();
}

std::uint64_t CudaAllocations::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

std::size_t CudaAllocations::count() const {
  const std::lock_guard lock(mutex_);
  return alive_.size();
}

std::vector<void*> CudaAllocations::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<void*> out;
  for (const auto& [ptr, bytes] : alive_) out.push_back(ptr);
  return out;
}

}  // namespace troupe::device
