// Cancels requests, on a thread of its own: Runtime::cancel waits for the runtime's acknowledgement, which neither the
// I/O thread nor the delivery thread may.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "actors/runtime.h"

namespace troupe::serve {

class Canceller {
 public:
  explicit Canceller(Runtime& runtime);
  ~Canceller();  // cancels what was asked for first

  // The requests `first` .. `first` + n - 1; those that have ended already are left alone. Any thread; never waits.
  // What waits here is bounded by the requests that live.
  void cancel(std::uint64_t first, std::uint32_t n);
  std::uint64_t acknowledged() const { return acknowledged_; }  // cancels that the runtime has answered

 private:
  void run();

  Runtime& runtime_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::uint64_t> asked_;
  bool stop_ = false;
  std::atomic<std::uint64_t> acknowledged_{0};
  std::thread thread_;
};

}  // namespace troupe::serve
