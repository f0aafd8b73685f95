// What a backend supplies: threads bound to a device, streams, events, asynchronous copies, page-locked memory,
// graphs. The host driver (device/host) and the CUDA driver implement it; nothing above calls a vendor API.
//
// Threads: while a runtime serves, create_*/destroy_*/alloc_*/free_* and event_query belong to the device actor; everything that
// takes a Stream belongs to the stream actor that owns it (R12). Whoever loads a model or an adapter has a stream, events and memory of
// its own until it has loaded (device/models/upload.h). Every thread that calls binds its device first.
// No call here blocks on device work but event_synchronize, which is never called on the control thread.
// Errors: device_failed = this call failed, the device lives; device_lost = sticky, no later call works.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "messages/error.h"

namespace troupe::device {

using DevicePtr = std::uint64_t;  // an address in the device's memory (on the host: a pointer)
using Stream = std::uint64_t;     // 0 = none
using Event = std::uint64_t;      // 0 = none
using Graph = std::uint64_t;      // 0 = none

// Work that runs on a stream in its order. `run` may not block on other streams, and may not call the driver.
// An error it returns completes the next event on the stream with that error (see event_error).
struct HostFunction {
  ErrorCode (*run)(void* context) = nullptr;
  void* context = nullptr;
};

// Called once, by a thread of the driver, when the stream reaches it. Must be short and must not throw.
struct Notify {
  void (*call)(void* context, Event event, ErrorCode status) = nullptr;
  void* context = nullptr;
};

// Calls that injected faults can be aimed at (tests).
enum class DriverCall : std::uint8_t {
  create_stream,
  create_event,
  record_event,
  event_query,
  stream_wait_event,
  copy_h2d,
  copy_d2h,
  enqueue,
  alloc_device,
  alloc_pinned,
  graph,
  launch,
  count
};

// The `nth` (from 1) call of that kind from now on fails with `code`; if sticky, so does every later call of any kind.
struct Fault {
  DriverCall call = DriverCall::enqueue;
  std::uint64_t nth = 1;
  ErrorCode code = ErrorCode::device_failed;
  bool sticky = false;
};

// What is alive; all zero after a clean teardown (R8).
struct DriverUsage {
  std::uint64_t streams = 0;
  std::uint64_t events = 0;
  std::uint64_t pinned_bytes = 0;
  std::uint64_t device_bytes = 0;
  std::uint64_t graphs = 0;
  std::uint64_t abandoned = 0;  // once the device is lost: how many of these objects and areas can't be given back
};

// Of two streams with work the device's free parts go to the one of high priority first, where it knows priorities.
enum class StreamPriority : std::uint8_t { normal, high };

class Driver {
 public:
  virtual ~Driver() = default;

  virtual std::string name() const = 0;  // "host:0"
  virtual Result<void> bind_thread() = 0;

  virtual Result<Stream> create_stream(StreamPriority priority = StreamPriority::normal) = 0;
  virtual Result<void> destroy_stream(Stream stream) = 0;  // after its queue is empty

  virtual Result<Event> create_event() = 0;
  // Completes when the stream reaches it; recording again while it is pending is device_failed.
  virtual Result<void> record_event(Event event, Stream stream) = 0;
  // Whether the work recorded against `event` has completed. Never blocks. An event that was never recorded counts as
  // complete. Error: what the work before it on the stream reported.
  virtual Result<bool> event_query(Event event) = 0;
  virtual Result<void> event_synchronize(Event event) = 0;
  virtual Result<void> destroy_event(Event event) = 0;  // device_failed while it is pending
  // Asks for a call when the event, already recorded, completes. `unsupported` where completions are polled (CUDA).
  virtual Result<void> notify_event(Event event, Stream stream, Notify notify) = 0;
  // Later work on `stream` waits for `event`. If the event is not recorded, waits for nothing (as CUDA does).
  virtual Result<void> stream_wait_event(Stream stream, Event event) = 0;

  // Both return before the copy; host memory must be page-locked and stay untouched until the stream passes it.
  virtual Result<void> copy_h2d_async(DevicePtr dst, const void* src, std::size_t bytes, Stream stream) = 0;
  virtual Result<void> copy_d2h_async(void* dst, DevicePtr src, std::size_t bytes, Stream stream) = 0;
  // Host work on the stream. `unsupported` where the device has none of its own to do there.
  virtual Result<void> enqueue_host_function(HostFunction function, Stream stream) = 0;

  // Whether the device runs kernels, which whoever enqueues launches (and spends the time for); else it runs host functions, on
  // threads of its own, and the three calls below are unsupported.
  virtual bool runs_kernels() const = 0;
  // The vendor's own stream (a cudaStream_t), on which the owner of `stream` launches. What earlier calls of this thread left in
  // the vendor's last error is forgotten, so that launched() speaks of launches alone.
  virtual Result<void*> native_stream(Stream stream) = 0;
  // A launch answers nothing itself: the first error of this thread's launches since native_stream or the last launched().
  // Those before it in stream order may be on the stream.
  virtual Result<void> launched(Stream stream) = 0;
  // What the bits of kernels may depend on besides their code: "sm_90".
  virtual Result<std::string> kernel_target() = 0;

  virtual Result<DevicePtr> alloc_device(std::size_t bytes) = 0;  // zeroed, 64-byte aligned
  virtual Result<void> free_device(DevicePtr ptr, std::size_t bytes) = 0;
  virtual Result<void*> alloc_host_pinned(std::size_t bytes) = 0;  // zeroed, page-locked, 64-byte aligned
  virtual Result<void> free_host_pinned(void* ptr, std::size_t bytes) = 0;

  // Default of the host driver: unsupported.
  virtual Result<void> graph_capture_begin(Stream stream) = 0;
  virtual Result<Graph> graph_capture_end(Stream stream) = 0;
  virtual Result<void> graph_launch(Graph graph, Stream stream) = 0;
  virtual Result<void> destroy_graph(Graph graph) = 0;

  virtual DriverUsage usage() const = 0;
  virtual void inject(Fault fault) = 0;
};

}  // namespace troupe::device
