#include "tools/bench/timed_driver.h"

#include <string>
#include <utility>

namespace troupe::tools {
namespace {

Result<void> checked(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return success();
  return Error{ErrorCode::device_failed, std::string(call) + ": " + cudaGetErrorName(error)};
}

}  // namespace

Result<std::unique_ptr<TimedDriver>> TimedDriver::create(std::unique_ptr<device::Driver> to, std::size_t most_steps) {
  std::unique_ptr<TimedDriver> driver(new TimedDriver(std::move(to)));
  TROUPE_TRY(driver->bind_thread());
  driver->log_.resize(most_steps);
  for (Entry& e : driver->log_) {
    TROUPE_TRY(checked(cudaEventCreateWithFlags(&e.begin, cudaEventDefault), "cudaEventCreateWithFlags"));
    TROUPE_TRY(checked(cudaEventCreateWithFlags(&e.end, cudaEventDefault), "cudaEventCreateWithFlags"));
  }
  return driver;
}

TimedDriver::~TimedDriver() {
  (void)bind_thread();
  for (const Entry& e : log_) {
    if (e.begin != nullptr) (void)cudaEventDestroy(e.begin);
    if (e.end != nullptr) (void)cudaEventDestroy(e.end);
  }
}

void TimedDriver::start() {
  taken_ = 0;
  on_ = true;
}

Result<std::vector<StepTimes>> TimedDriver::steps() {
  on_ = false;
  std::vector<StepTimes> out(taken_);
  for (std::size_t i = 0; i < out.size(); ++i) {
    float begin = 0.0f, end = 0.0f;
    TROUPE_TRY(checked(cudaEventSynchronize(log_[i].end), "cudaEventSynchronize"));
    TROUPE_TRY(checked(cudaEventElapsedTime(&begin, log_[0].begin, log_[i].begin), "cudaEventElapsedTime"));
    TROUPE_TRY(checked(cudaEventElapsedTime(&end, log_[0].begin, log_[i].end), "cudaEventElapsedTime"));
    out[i] = {begin, end, std::chrono::duration<double, std::micro>(log_[i].last_call - log_[i].first_call).count()};
  }
  return out;
}

Result<void> TimedDriver::mark(cudaEvent_t event, device::Stream stream) {
  TROUPE_TRY(void* const native, native_stream(stream));
  return checked(cudaEventRecord(event, static_cast<cudaStream_t>(native)), "cudaEventRecord");
}

// A step begins with the copy of its parameters.
Result<void> TimedDriver::copy_h2d_async(device::DevicePtr to, const void* from, std::size_t bytes, device::Stream stream) {
  if (on_ && open_ == 0 && taken_ < log_.size()) {
    log_[taken_].first_call = Clock::now();
    TROUPE_TRY(mark(log_[taken_].begin, stream));
    open_ = stream;
  }
  return ForwardingDriver::copy_h2d_async(to, from, bytes, stream);
}

// And ends with the event that says it is done.
Result<void> TimedDriver::record_event(device::Event event, device::Stream stream) {
  if (open_ == stream && open_ != 0) {
    TROUPE_TRY(mark(log_[taken_].end, stream));
    log_[taken_].last_call = Clock::now();
    open_ = 0;
    ++taken_;
  }
  return ForwardingDriver::record_event(event, stream);
}

}  // namespace troupe::tools
