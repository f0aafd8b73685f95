// What the CUDA driver knows of its streams and events, and how host functions get their errors to an event.
//
// Invariants
//   - one thread enqueues on a stream (R12), CUDA's thread for its host functions takes; nothing is allocated;
//   - an error of a host function is handed to the next event recorded behind it, and to that one only: the record
//     enqueues a hand-over in front of itself if host functions ran since the last one. Streams without host functions
//     pay nothing;
//   - an event is pending only from the moment CUDA has its record; while the record is being made, whoever asks is
//     told that it is not complete.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "device/driver.h"

namespace troupe::device {

struct CudaEvent {
  enum State : std::uint32_t { complete, recording, pending };
  std::atomic<std::uint32_t> generation{0};  // odd: alive; a handle carries it
  cudaEvent_t event = nullptr;
  std::atomic<std::uint32_t> state{complete};
  std::atomic<ErrorCode> status{ErrorCode::none};  // what the host functions before it reported
};

struct CudaGraph {
  std::atomic<std::uint32_t> generation{0};
  cudaGraphExec_t exec = nullptr;
};

class CudaStream {
 public:
  // `lost`: the driver's; once it is set, host functions that are still called do nothing.
  CudaStream(cudaStream_t stream, std::uint32_t capacity, const std::atomic<ErrorCode>& lost)
      : lost_(lost), stream_(stream), calls_(capacity) {}
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  cudaStream_t get() const { return stream_; }
  bool full() const { return tail_ - head_.load(std::memory_order_acquire) >= calls_.size(); }
  bool idle() const { return tail_ == head_.load(std::memory_order_acquire); }  // every host function has returned
  // Needs room. What CUDA says of the enqueueing.
  cudaError_t enqueue(HostFunction function);
  // Whether an event must be handed an error, and thus needs room.
  bool owes_status() const { return ran_functions_; }
  cudaError_t hand_over(CudaEvent& event);

  bool capturing = false;  // the enqueueing thread's

 private:
  struct Call {
    CudaStream* stream = nullptr;
    HostFunction function{};  // none: a hand-over
    CudaEvent* event = nullptr;
  };
  static void run(void* context);  // on CUDA's thread
  cudaError_t push(const Call& call);

  const std::atomic<ErrorCode>& lost_;
  const cudaStream_t stream_;
  std::vector<Call> calls_;
  std::uint32_t tail_ = 0;              // enqueued, ever; wraps
  std::atomic<std::uint32_t> head_{0};  // run, ever; wraps
  bool ran_functions_ = false;          // since the last hand-over
  ErrorCode error_ = ErrorCode::none;   // of the functions since the last hand-over; CUDA's thread only
};

}  // namespace troupe::device
