#include "device/host/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

namespace troupe::device {
namespace {

constexpr std::size_t kAlign = 64;
// From here on pages come straight from the system: zeroed, and taken only when touched, so that a KV pool may be
// larger than what a run will fill.
constexpr std::size_t kMapFrom = std::size_t{1} << 20;

void give_back(void* ptr, std::size_t bytes) {
  if (bytes >= kMapFrom) {
    ::munmap(ptr, bytes);
  } else {
    std::free(ptr);
  }
}

}  // namespace

HostMemory::~HostMemory() {
  for (const auto& [ptr, bytes] : alive_) give_back(ptr, bytes);
}

Result<void*> HostMemory::alloc(std::size_t bytes) {
  void* ptr = nullptr;
  if (bytes >= kMapFrom) {
    ptr = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ptr == MAP_FAILED) ptr = nullptr;
  } else {
    const std::size_t rounded = bytes == 0 ? kAlign : (bytes + kAlign - 1) / kAlign * kAlign;
    ptr = std::aligned_alloc(kAlign, rounded);
    if (ptr != nullptr) std::memset(ptr, 0, rounded);
  }
  if (ptr == nullptr) {
    return Error{ErrorCode::device_failed,
                 fmt::format("the machine has no {} bytes left; ask for fewer KV blocks or a smaller batch", bytes)};
  }
  const std::lock_guard lock(mutex_);
  alive_.emplace(ptr, bytes);
  bytes_ += bytes;
  return ptr;
}

Result<void> HostMemory::free(void* ptr, std::size_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    const auto it = alive_.find(ptr);
    if (it == alive_.end()) {
      return Error{ErrorCode::device_failed, "free of memory that this driver did not give out, or that was freed before"};
    }
    if (it->second != bytes) {
      return Error{ErrorCode::device_failed, fmt::format("free of {} bytes where {} were given out", bytes, it->second)};
    }
    alive_.erase(it);
    bytes_ -= bytes;
  }
  give_back(ptr, bytes);
  return success();
}

std::uint64_t HostMemory::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

std::size_t HostMemory::count() const {
  const std::lock_guard lock(mutex_);
  return alive_.size();
}

}  // namespace troupe::device
