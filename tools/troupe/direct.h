// A model driven by hand, one sequence, one step at a time: no actors. What `troupe logits` and the benchmark's
// baseline use. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/driver.h"
#include "device/model.h"

namespace troupe::tools {

class DirectSequence {
 public:
  // The model must have been loaded on that driver; both outlive this. Errors: the driver's.
  static Result<std::unique_ptr<DirectSequence>> create(device::Driver& driver, device::ModelDeviceFeed& model);
  ~DirectSequence();

  // Runs the next position with `id`, waits, and returns its logits [vocab], valid until the next call. Errors: the
  // device's; bad_request past the context or the KV pool.
  Result<std::span<const float>> step(Token id);
  std::uint32_t length() const { return length_; }

 private:
  DirectSequence(device::Driver& driver, device::ModelDeviceFeed& model) : driver_(driver), model_(model) {}
  Result<void> allocate();

  device::Driver& driver_;
  device::ModelDeviceFeed& model_;
  device::Stream stream_ = 0;
  device::Event event_ = 0;
  Readback* readback_ = nullptr;
  float* logits_ = nullptr;
  void* upload_ = nullptr;
  device::DevicePtr cells_ = 0;
  std::uint32_t length_ = 0;
  std::uint64_t steps_ = 0;
  std::vector<TableDelta> deltas_;
};

}  // namespace troupe::tools
