// A CUDA driver that takes the device's time of each step: an event in front of a step's first copy to the device, and one behind
// its last work. So it is known when the device had a step to run, by its own clock.
//
// Threads: start() and steps() by one thread, bound to the device, while nothing runs; the rest as any driver's. One stream at a
// time runs steps.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "device/forwarding_driver.h"

namespace troupe::tools {

struct StepTimes {
  double begin_ms = 0, end_ms = 0;  // on the device, since the first one's begin
  double enqueue_us = 0;            // on the host, for all of its calls
};

class TimedDriver final : public device::ForwardingDriver {
 public:
  static Result<std::unique_ptr<TimedDriver>> create(std::unique_ptr<device::Driver> to, std::size_t most_steps);
  ~TimedDriver() override;

  void start();  // forgets what was, and takes the next steps' times
  Result<std::vector<StepTimes>> steps();

  Result<void> copy_h2d_async(device::DevicePtr to, const void* from, std::size_t bytes, device::Stream stream) override;
  Result<void> record_event(device::Event event, device::Stream stream) override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    cudaEvent_t begin = nullptr, end = nullptr;
    Clock::time_point first_call, last_call;
  };
  using ForwardingDriver::ForwardingDriver;
  Result<void> mark(cudaEvent_t event, device::Stream stream);

  std::vector<Entry> log_;
  std::atomic<std::size_t> taken_{0};
  std::atomic<bool> on_{false};
  device::Stream open_ = 0;  // the stream of a step that has begun and not ended; the stream's thread alone
};

}  // namespace troupe::tools
