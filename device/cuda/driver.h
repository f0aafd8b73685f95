// The CUDA driver: device/driver.h over the CUDA runtime API. Streams don't wait for the null stream, events take no
// time, device memory comes from the device's pool (cudaMallocAsync), graphs are captured thread-locally, so that the
// control thread may poll events meanwhile.
//
// What is CUDA's own
//   - Completions are polled: notify_event answers `unsupported`. event_query asks CUDA only while the event is
//     pending, and never blocks. Where CUDA can't say for now (a global capture by somebody else in the process forbids
//     the query), the event counts as pending: what it stands for may still be running, and step_timeout bounds it.
//   - A wait for an event that is not recorded waits for nothing: whoever sends a stream the wait must know that the
//     record was made.
//   - Copies of memory that is not page-locked are not refused and not asynchronous; nothing here hands such memory out.
//   - alloc_device waits for the zeroing of the new memory, on a stream of the driver's own, and for nothing else. A
//     free is ordered on that stream too: what used the memory must have settled (R3).
//   - enqueue_host_function runs on a thread of CUDA's, which stalls the stream meanwhile, and may stall the host functions of other
//     streams: for scripted models and tests. An error it returns goes to the next event of its stream. A graph cannot hold one.
//   - CUDA's own queues are bounded, by numbers that it does not name: about a thousand launches, some tens of host functions. Whoever
//     enqueues more waits in the call until the device has come further, and calls of other threads may wait with it; so
//     stream_capacity is small.
//   - While a stream is captured it takes copies and kernels; events, waits and host functions are device_failed.
//
// Errors: a call that fails leaves nothing behind in cudaGetLastError, so that no later launch is blamed for it. A code
// after which CUDA's context is unusable loses the device: that call and every later one answer device_lost, and what
// is alive then is usage().abandoned. device_failed and overloaded as in device/host/driver.h.
//
// Threads: as device/driver.h says; each that calls binds first. make_cuda_driver binds its caller, the destructor
// too. The destructor waits for what the streams still do, and gives back what is left; on a lost device nothing,
// and what CUDA may still call stays in memory.
#pragma once

#include <cstdint>
#include <memory>

#include "device/driver.h"

namespace troupe::device {

struct CudaDriverOptions {
  std::uint32_t index = 0;             // of the device: "cuda:0"
  std::uint32_t stream_capacity = 32;  // host functions queued on one stream
  std::uint32_t max_streams = 8;
  std::uint32_t max_events = 1024;
  std::uint32_t max_graphs = 256;
};

// unsupported: this build has no CUDA, or there is no NVIDIA driver, or no such device, or one of them is too old; the sentence says which,
// and what to use instead.
Result<std::unique_ptr<Driver>> make_cuda_driver(const CudaDriverOptions& options = {});

}  // namespace troupe::device
