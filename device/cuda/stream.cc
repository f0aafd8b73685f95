#include "device/cuda/stream.h"

#include <utility>

namespace troupe::device {

cudaError_t CudaStream::push(const Call& call) {
  Call& slot = calls_[tail_ % calls_.size()];
  slot = call;
  slot.stream = this;
  const cudaError_t error = cudaLaunchHostFunc(stream_, &CudaStream::run, &slot);
  if (error == cudaSuccess) ++tail_;
  return error;
}

cudaError_t CudaStream::enqueue(HostFunction function) {
  const cudaError_t error = push({.function = function});
  if (error == cudaSuccess) ran_functions_ = true;
  return error;
}

cudaError_t CudaStream::hand_over(CudaEvent& event) {
  const cudaError_t error = push({.event = &event});
  if (error == cudaSuccess) ran_functions_ = false;
  return error;
}

void CudaStream::run(void* context) {
  const Call& call = *static_cast<Call*>(context);
  CudaStream& stream = *call.stream;
  const ErrorCode lost = stream.lost_.load(std::memory_order_acquire);
  if (call.event != nullptr) {
    const ErrorCode error = std::exchange(stream.error_, ErrorCode::none);
    call.event->status.store(lost != ErrorCode::none ? lost : error, std::memory_order_release);
  } else if (lost == ErrorCode::none) {
    const ErrorCode code = call.function.run(call.function.context);
    if (stream.error_ == ErrorCode::none) stream.error_ = code;
  }
  stream.head_.fetch_add(1, std::memory_order_release);
}

}  // namespace troupe::device
