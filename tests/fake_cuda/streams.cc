// Devices, streams, events, host functions and kernels of the fake runtime.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "tests/fake_cuda/machine.h"

namespace fake_cuda {

Entry::Entry(Call call, Needs needs) : lock(machine().mutex), m(machine()), call_(call) {
  ThreadState& thread = this_thread();
  ++m.calls[static_cast<std::size_t>(call)];
  if (thread.in_host_function) {
    m.report(fmt::format("{}: called from a host function, where CUDA may not be called", name()));
    error_ = cudaErrorNotPermitted;
    return;
  }
  if (!m.options.driver_installed || m.options.driver_version / 1000 < CUDART_VERSION / 1000) {
    error_ = cudaErrorInsufficientDriver;
    return;
  }
  if (m.options.devices == 0) {
    error_ = cudaErrorNoDevice;
    return;
  }
  if (needs == Needs::device && !thread.bound) m.report(fmt::format("{}: called by a thread that never called cudaSetDevice", name()));
  if (const cudaError_t loss = m.lost[static_cast<std::size_t>(thread.device)]; loss != cudaSuccess) {
    error_ = loss;
    return;
  }
  for (std::size_t i = 0; i < m.faults.size();) {
    Fault& fault = m.faults[i];
    if (fault.call != call || --fault.nth != 0) {
      ++i;
      continue;
    }
    if (error_ == cudaSuccess) error_ = fault.error;
    if (fault.sticky) m.lose(thread.device, fault.error);
    m.faults.erase(m.faults.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

int priority(cudaStream_t stream) { return stream->priority; }

cudaError_t Entry::done(cudaError_t error) {
  if (error != cudaSuccess) this_thread().last = error;
  return error;
}

bool Entry::usable(CUstream_st* stream) {
  if (m.streams.count(stream) == 0) {
    m.report(fmt::format("{}: no such stream, or one that was destroyed", name()));
    return false;
  }
  if (stream->device == this_thread().device) return true;
  m.report(fmt::format("{}: the stream is of device {}, and the thread's device is {}: bind the thread first", name(), stream->device,
                       this_thread().device));
  return false;
}

bool Entry::alive(CUevent_st* event) {
  if (m.events.count(event) != 0) return true;
  m.report(fmt::format("{}: no such event, or one that was destroyed", name()));
  return false;
}

bool Entry::breaks_capture() {
  bool breaks = false;
  for (CUstream_st* stream : m.streams) {
    if (!stream->capturing || stream->mode == cudaStreamCaptureModeRelaxed) continue;
    const bool own = stream->capturer == std::this_thread::get_id();
    if (stream->mode == cudaStreamCaptureModeThreadLocal && !own) continue;
    stream->capture_broken = true;
    breaks = true;
    m.report(
        own ? fmt::format("{}: called by the thread that captures a stream; the capture is broken", name())
            : fmt::format("{}: called while another thread captures a stream in global mode; the capture is broken: capture thread-locally",
                          name()));
  }
  return breaks;
}

void* device_address(void* of_host) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  const Pinned::Area* const area = m.pinned.find(of_host, 1);
  return area == nullptr ? of_host : Pinned::stream_view(*area, of_host);
}

void launch(cudaStream_t stream, Kernel kernel) { launch(stream, nullptr, {}, std::move(kernel)); }

void launch(cudaStream_t stream, const void* which, const std::vector<Touched>& touched, Kernel kernel) {
  Entry e(Call::kernel_launch, Entry::Needs::device);
  if (e.refused()) return void(Entry::done(e.error()));
  if (!e.usable(stream)) return void(Entry::done(cudaErrorInvalidResourceHandle));
  if (which != nullptr && e.m.loaded.insert(which).second && stream->capturing)
    e.m.report(fmt::format("{}: the kernel's first launch is into a capture, which may not load it: launch it before", e.name()));
  Work work;
  work.kernel = std::move(kernel);
  work.touched = touched;
  (void)Entry::done(e.m.enqueue(*stream, std::move(work), e.name()));
}

}  // namespace fake_cuda

using fake_cuda::Call;
using fake_cuda::Entry;
using fake_cuda::Work;

extern "C" {

cudaError_t cudaGetLastError(void) { return std::exchange(fake_cuda::this_thread().last, cudaSuccess); }

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
#define NAME(code) \
  case code:       \
    return #code;
    NAME(cudaSuccess)
    NAME(cudaErrorInvalidValue)
    NAME(cudaErrorMemoryAllocation)
    NAME(cudaErrorInsufficientDriver)
    NAME(cudaErrorNoDevice)
    NAME(cudaErrorInvalidDevice)
    NAME(cudaErrorInvalidResourceHandle)
    NAME(cudaErrorNotReady)
    NAME(cudaErrorIllegalAddress)
    NAME(cudaErrorLaunchFailure)
    NAME(cudaErrorStreamCaptureUnsupported)
    NAME(cudaErrorStreamCaptureInvalidated)
#undef NAME
    default:
      return "another CUDA error";
  }
}

cudaError_t cudaDriverGetVersion(int* driverVersion) {
  fake_cuda::Machine& m = fake_cuda::machine();
  const std::lock_guard lock(m.mutex);
  *driverVersion = m.options.driver_installed ? m.options.driver_version : 0;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  Entry e(Call::cudaGetDeviceCount, Entry::Needs::nothing);
  if (e.refused()) return Entry::done(e.error());
  *count = e.m.options.devices;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  Entry e(Call::cudaSetDevice, Entry::Needs::nothing);
  if (e.refused()) return Entry::done(e.error());
  if (device < 0 || device >= e.m.options.devices) return Entry::done(cudaErrorInvalidDevice);
  fake_cuda::this_thread().device = device;
  fake_cuda::this_thread().bound = true;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, enum cudaDeviceAttr attr, int device) {
  Entry e(Call::cudaDeviceGetAttribute, Entry::Needs::nothing);
  if (e.refused()) return Entry::done(e.error());
  if (device < 0 || device >= e.m.options.devices) return Entry::done(cudaErrorInvalidDevice);
  switch (attr) {
    case cudaDevAttrComputeCapabilityMajor:
      *value = e.m.options.compute_capability / 10;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = e.m.options.compute_capability % 10;
      return cudaSuccess;
    case cudaDevAttrMemoryPoolsSupported:
      *value = e.m.options.memory_pools ? 1 : 0;
      return cudaSuccess;
    default:
      return Entry::done(cudaErrorInvalidValue);
  }
}

namespace {

cudaError_t create_stream(Entry& e, cudaStream_t* pStream, unsigned int flags, int priority, const char* call) {
  if (flags != cudaStreamNonBlocking) e.m.report(std::string(call) + ": the stream waits for the null stream: pass cudaStreamNonBlocking");
  auto stream = std::make_unique<CUstream_st>();
  stream->device = fake_cuda::this_thread().device;
  stream->priority = priority;
  stream->thread = std::thread([&m = e.m, s = stream.get()] { m.work(s); });
  *pStream = *e.m.streams.insert(stream.release()).first;
  return cudaSuccess;
}

}  // namespace

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* pStream, unsigned int flags) {
  Entry e(Call::cudaStreamCreateWithFlags, Entry::Needs::device);
  if (e.refused()) return Entry::done(e.error());
  return create_stream(e, pStream, flags, 0, "cudaStreamCreateWithFlags");
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  Entry e(Call::cudaDeviceGetStreamPriorityRange, Entry::Needs::device);
  if (e.refused()) return Entry::done(e.error());
  *leastPriority = 0;
  *greatestPriority = fake_cuda::kGreatestPriority;
  return cudaSuccess;
}

// CUDA clamps a priority outside the range, in silence.
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* pStream, unsigned int flags, int priority) {
  Entry e(Call::cudaStreamCreateWithPriority, Entry::Needs::device);
  if (e.refused()) return Entry::done(e.error());
  return create_stream(e, pStream, flags, std::clamp(priority, fake_cuda::kGreatestPriority, 0), "cudaStreamCreateWithPriority");
}

// The stream's thread goes with the next reset.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Entry e(Call::cudaStreamDestroy, Entry::Needs::device);
  if (e.refused()) return Entry::done(e.error());
  if (!e.usable(stream)) return Entry::done(cudaErrorInvalidResourceHandle);
  if (!stream->queue.empty()) e.m.report("cudaStreamDestroy: work is queued on the stream");
  e.m.streams.erase(stream);
  e.m.old_streams.emplace_back(stream);
  stream->stop = true;
  e.m.changed.notify_all();
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  Entry e(Call::cudaStreamQuery, Entry::Needs::device);
  if (e.refused()) return Entry::done(e.error());
  if (!e.usable(stream)) return Entry::done(cudaErrorInvalidResourceHandle);
  if (e.breaks_capture()) return Entry::done(cudaErrorStreamCaptureUnsupported);
  if (!stream->queue.empty()) return Entry::done(cudaErrorNotReady);
  e.m.seen(stream->clock);
  e.m.seen(stream, stream->done);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  Entry e(Call::cudaStreamSynchronize, Entry::Needs::device);
  if (e.refused()) return Entry::done(e.error());
  if (!e.usable(stream)) return Entry::done(cudaErrorInvalidResourceHandle);
  if (e.breaks_capture()) return Entry::done(cudaErrorStreamCaptureUnsupported);
  const std::uint64_t until = stream->enqueued;
  const cudaError_t& loss = e.m.lost[static_cast<std::size_t>(stream->device)];
  e.m.changed.wait(e.lock, [&] { return stream->done >= until || loss != cudaSuccess; });
  if (loss != cudaSuccess) return Entry::done(loss);
  e.m.seen(stream->clock);
  e.m.seen(stream, until);
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
  Entry e(Call::cudaStreamWaitEvent, Entry::Needs::device);
  if (e.refused()) return Entry::done(e.error());
  if (!e.usable(stream) || !e.alive(event)) return Entry::done(cudaErrorInvalidResourceHandle);
  if (event->recorded == 0) {
    e.m.report("cudaStreamWaitEvent: the event was never recorded, so the stream waits for nothing: send the wait only after the record");
  }
  Work work;
  work.kind = Work::Kind::wait;
  work.event = event;
  return Entry::done(e.m.enqueue(*stream, std::move(work), e.name()));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  Entry e(Call::cudaEventCreateWithFlags, Entry::Needs::device);
  if (e.refused()) return Entry::done(e.error());
  auto made = std::make_unique<CUevent_st>();
  made->timed = (flags & cudaEventDisableTiming) == 0;
  if (made->timed && !e.m.options.timed_events)
    e.m.report("cudaEventCreateWithFlags: an event that takes the time makes every record slow");
  made->device = fake_cuda::this_thread().device;
  *event = *e.m.events.insert(made.release()).first;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  Entry e(Call::cudaEventRecord, Entry::Needs::device);
  if (e.refused()) return Entry::done(e.error());
  if (!e.usable(stream) || !e.alive(event)) return Entry::done(cudaErrorInvalidResourceHandle);
  if (event->device != stream->device) {
    e.m.report(fmt::format("cudaEventRecord: an event of device {} on a stream of device {}", event->device, stream->device));
    return Entry::done(cudaErrorInvalidResourceHandle);
  }
  if (event->completed != event->recorded)
    e.m.report("cudaEventRecord: the event is in flight, and who waits for the earlier record now waits for this one");
  Work work;
  work.kind = Work::Kind::record;
  work.event = event;
  return Entry::done(e.m.enqueue(*stream, std::move(work), e.name()));
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  Entry e(Call::cudaEventQuery, Entry::Needs::device);
  if (e.refused()) return Entry::done(e.error());
  if (!e.alive(event)) return Entry::done(cudaErrorInvalidResourceHandle);
  if (e.breaks_capture()) return Entry::done(cudaErrorStreamCaptureUnsupported);
  if (event->captured) return Entry::done(cudaErrorCapturedEvent);
  if (event->completed != event->recorded) return Entry::done(cudaErrorNotReady);
  e.m.seen(event->clock);
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  Entry e(Call::cudaEventSynchronize, Entry::Needs::device);
  if (e.refused()) return Entry::done(e.error());
  if (!e.alive(event)) return Entry::done(cudaErrorInvalidResourceHandle);
  if (e.breaks_capture()) return Entry::done(cudaErrorStreamCaptureUnsupported);
  if (event->captured) return Entry::done(cudaErrorCapturedEvent);
  const std::uint64_t until = event->recorded;
  const fake_cuda::Clock clock = event->clock;
  const cudaError_t& loss = e.m.lost[static_cast<std::size_t>(event->device)];
  e.m.changed.wait(e.lock, [&] { return event->completed >= until || loss != cudaSuccess; });
  if (loss != cudaSuccess) return Entry::done(loss);
  e.m.seen(clock);
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  Entry e(Call::cudaEventDestroy, Entry::Needs::device);
  if (e.refused()) return Entry::done(e.error());
  if (!e.alive(event)) return Entry::done(cudaErrorInvalidResourceHandle);
  if (event->completed != event->recorded) e.m.report("cudaEventDestroy: the event is in flight");
  e.m.events.erase(event);
  e.m.old_events.emplace_back(event);
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  Entry e(Call::cudaEventElapsedTime, Entry::Needs::device);
  if (e.refused()) return Entry::done(e.error());
  if (!e.alive(start) || !e.alive(end) || !start->timed || !end->timed || start->recorded == 0 || end->recorded == 0)
    return Entry::done(cudaErrorInvalidResourceHandle);
  if (start->completed != start->recorded || end->completed != end->recorded) return Entry::done(cudaErrorNotReady);
  *ms = std::chrono::duration<float, std::milli>(end->at - start->at).count();
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void* userData) {
  Entry e(Call::cudaLaunchHostFunc, Entry::Needs::device);
  if (e.refused()) return Entry::done(e.error());
  if (!e.usable(stream)) return Entry::done(cudaErrorInvalidResourceHandle);
  Work work;
  work.kind = Work::Kind::function;
  work.function = fn;
  work.context = userData;
  const auto queued = std::count_if(stream->queue.begin(), stream->queue.end(),
                                    [](const CUstream_st::Queued& q) { return q.work.kind == Work::Kind::function; });
  if (static_cast<std::size_t>(queued) >= fake_cuda::kMostHostFunctions) {
    e.m.report(
        fmt::format("cudaLaunchHostFunc: {} host functions are queued on the stream already: CUDA's queue may be full, and the call then "
                    "waits for the stream",
                    queued));
  }
  return Entry::done(e.m.enqueue(*stream, std::move(work), e.name()));
}

}  // extern "C"
