#include "tests/fake_cuda/machine.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace fake_cuda {

Machine& machine() {
  static Machine m;
  return m;
}

ThreadState& this_thread() {
  static thread_local ThreadState state;
  return state;
}

const char* name(Call call) {
  static constexpr const char* kNames[] = {
#define FAKE_CUDA_NAME(name) #name,
      FAKE_CUDA_CALLS(FAKE_CUDA_NAME)
#undef FAKE_CUDA_NAME
  };
  return call < Call::count ? kNames[static_cast<std::size_t>(call)] : "?";
}

namespace {

// Whether a word of a struct that is mapped memory's address is one. ASan maps terabytes, in which two small numbers make an address.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kWordsAreAddresses = false;
#else
constexpr bool kWordsAreAddresses = true;
#endif

// Whether it is an address of this process at all.
bool is_mapped(const void* p) {
  const auto page_size = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::uintptr_t page = reinterpret_cast<std::uintptr_t>(p) / page_size * page_size;
  unsigned char resident = 0;
  return page != 0 && ::mincore(reinterpret_cast<void*>(page), 1, &resident) == 0;
}

}  // namespace

Machine::Machine() : lost(1, cudaSuccess), used(1, 0) {}

void Machine::lose(int device, cudaError_t error) {
  if (lost[static_cast<std::size_t>(device)] == cudaSuccess) lost[static_cast<std::size_t>(device)] = error;
  changed.notify_all();
}

DeviceMemory* Machine::find(const void* ptr, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(ptr);
  auto it = memory.upper_bound(address);
  if (it == memory.begin()) return nullptr;
  --it;
  return address + bytes <= it->first + it->second.bytes ? &it->second : nullptr;
}

cudaError_t Machine::check_copy(CUstream_st& stream, const Work& work, const char* call, bool& pageable) {
  if (work.direction == cudaMemcpyDeviceToDevice) {
    if (find(work.src, work.bytes) != nullptr && find(work.dst, work.bytes) != nullptr) return cudaSuccess;
    report(fmt::format("{}: {} bytes of device memory that no allocation holds", call, work.bytes));
    return cudaErrorInvalidValue;
  }
  const bool up = work.direction == cudaMemcpyHostToDevice;
  const void* host = up ? work.src : work.dst;
  const void* device = up ? work.dst : work.src;
  const DeviceMemory* memory_of = find(device, work.bytes);
  if (memory_of == nullptr) {
    report(fmt::format("{}: {} bytes of device memory that no allocation holds", call, work.bytes));
    return cudaErrorInvalidValue;
  }
  if (memory_of->device != stream.device)
    report(fmt::format("{}: memory of device {} on a stream of device {}", call, memory_of->device, stream.device));
  const Pinned::Area* area = pinned.find(host, work.bytes);
  pageable = area == nullptr;
  if (pageable) {
    report(fmt::format("{}: the host's memory is not page-locked, so the copy is not asynchronous", call));
  } else if (Pinned::freed(*area)) {
    report(fmt::format("{}: the host's memory was given back by cudaFreeHost", call));
    return cudaErrorInvalidValue;
  }
  return cudaSuccess;
}

cudaError_t Machine::enqueue(CUstream_st& stream, Work work, const char* call) {
  bool pageable = false;
  if (work.kind == Work::Kind::copy) {
    if (const cudaError_t bad = check_copy(stream, work, call, pageable); bad != cudaSuccess) return bad;
  }
  if (work.kind == Work::Kind::set && find(work.dst, work.bytes) == nullptr) {
    report(fmt::format("{}: {} bytes of device memory that no allocation holds", call, work.bytes));
    return cudaErrorInvalidValue;
  }
  if (stream.capturing) {
    if (work.kind == Work::Kind::free || work.kind == Work::Kind::wait || pageable) return cudaErrorStreamCaptureUnsupported;
    if (stream.capture_broken) return cudaErrorStreamCaptureInvalidated;
    if (work.kind == Work::Kind::record) {
      work.event->captured = true;
    } else {
      stream.graph->nodes.push_back(std::move(work));
    }
    return cudaSuccess;
  }
  const std::uint64_t seq = ++stream.enqueued;
  if (work.kind == Work::Kind::copy && !pageable && work.direction != cudaMemcpyDeviceToDevice) {
    const bool up = work.direction == cudaMemcpyHostToDevice;
    Hold hold{nullptr, up ? work.src : work.dst, work.bytes, up ? Access::copy_out : Access::copy_in, seq};
    hold.area = pinned.find(hold.ptr, hold.bytes);
    pinned.hold(*hold.area, hold.ptr, hold.bytes, hold.access);
    stream.holds.push_back(hold);
  }
  for (const Touched& t : work.touched) {
    if (t.in_struct && !kWordsAreAddresses) continue;
    Pinned::Area* const area = pinned.find(t.memory, 1);
    if (area == nullptr && find(t.memory, 1) == nullptr && is_mapped(t.memory))
      report(fmt::format("{}: the kernel is given memory of the host's that is not page-locked, where it would fault", call));
    if (t.in_struct || area == nullptr || !Pinned::starts_at(*area, t.memory)) continue;
    if (Pinned::freed(*area)) report(fmt::format("{}: the kernel is given page-locked memory that was given back by cudaFreeHost", call));
    const Hold hold{area, t.memory, Pinned::bytes(*area), t.writes ? Access::copy_in : Access::copy_out, seq};
    pinned.hold(*area, hold.ptr, hold.bytes, hold.access);
    stream.holds.push_back(hold);
  }
  if (work.kind == Work::Kind::record) {
    work.event->captured = false;
    work.event->clock = stream.clock;
    work.event->clock[&stream] = seq;
    work.count = ++work.event->recorded;
  }
  if (work.kind == Work::Kind::wait) {
    bool waits = work.event->clock.empty();  // never recorded: its caller says so
    for (const auto& [other, until] : work.event->clock) {
      std::uint64_t& known = stream.clock[other];
      waits = waits || known < until;
      known = std::max(known, until);
    }
    if (!waits) {
      report(
          fmt::format("{}: the stream waited for this record before, so it waits for nothing: send the wait only after the record", call));
    }
    work.count = work.event->recorded;
  }
  stream.queue.push_back({std::move(work), seq});
  changed.notify_all();
  return cudaSuccess;
}

void Machine::seen(CUstream_st* stream, std::uint64_t seq) {
  while (!stream->holds.empty() && stream->holds.front().seq <= seq) {
    const Hold& hold = stream->holds.front();
    pinned.release(*hold.area, hold.ptr, hold.bytes, hold.access);
    stream->holds.pop_front();
  }
}

void Machine::seen(const Clock& clock) {
  for (const auto& [stream, seq] : clock) seen(stream, seq);
}

cudaError_t Machine::run(std::unique_lock<std::mutex>& lock, CUstream_st& stream, const Work& work) {
  const auto outside = [&](auto&& f) {
    lock.unlock();
    f();
    lock.lock();
  };
  switch (work.kind) {
    case Work::Kind::copy: {
      if (work.direction == cudaMemcpyDeviceToDevice) {
        outside([&] { std::memcpy(work.dst, work.src, work.bytes); });
        return cudaSuccess;
      }
      const bool up = work.direction == cudaMemcpyHostToDevice;
      const void* host = up ? work.src : work.dst;
      if (find(up ? work.dst : work.src, work.bytes) == nullptr) {
        report("a queued copy reached device memory that was freed meanwhile");
        return cudaErrorIllegalAddress;
      }
      const Pinned::Area* area = pinned.find(host, work.bytes);
      void* view = area != nullptr ? Pinned::stream_view(*area, host) : const_cast<void*>(host);
      outside([&] { up ? std::memcpy(work.dst, view, work.bytes) : std::memcpy(view, work.src, work.bytes); });
      return cudaSuccess;
    }
    case Work::Kind::set:
      outside([&] { std::memset(work.dst, work.value, work.bytes); });
      return cudaSuccess;
    case Work::Kind::function:
      outside([&] {
        this_thread().in_host_function = true;
        work.function(work.context);
        this_thread().in_host_function = false;
      });
      return cudaSuccess;
    case Work::Kind::kernel: {
      cudaError_t error = cudaSuccess;
      outside([&] { error = work.kernel(); });
      return error;
    }
    case Work::Kind::free: {
      const auto it = memory.find(reinterpret_cast<std::uintptr_t>(work.dst));
      used[static_cast<std::size_t>(it->second.device)] -= it->second.bytes;
      memory.erase(it);
      std::free(work.dst);
      return cudaSuccess;
    }
    case Work::Kind::wait:
      changed.wait(lock,
                   [&] { return work.event->completed >= work.count || lost[static_cast<std::size_t>(stream.device)] != cudaSuccess; });
      return cudaSuccess;
    case Work::Kind::record:
      return cudaSuccess;
  }
  return cudaSuccess;
}

// What a lost device did not call. Kept to the process's end, as CUDA's own queue would keep it: so that whoever left it
// there on purpose is not taken for a leak.
void keep_uncalled(void* context) {
  static auto* const kept = new std::vector<void*>;
  kept->push_back(context);
}

// A lost device does nothing any more: what is queued falls away.
void Machine::work(CUstream_st* stream) {
  on_stream_thread = true;
  std::unique_lock lock(mutex);
  for (;;) {
    changed.wait(lock, [&] { return stream->stop || !stream->queue.empty(); });
    if (stream->queue.empty()) return;
    const CUstream_st::Queued& next = stream->queue.front();  // a deque: later ones don't move it
    const cudaError_t& loss = lost[static_cast<std::size_t>(stream->device)];
    if (options.jitter != 0 && dawdle() % 4 == 0) {
      const auto pause = std::chrono::microseconds(dawdle() % 50);
      lock.unlock();
      std::this_thread::sleep_for(pause);
      lock.lock();
    }
    if (loss == cudaSuccess) {
      if (const cudaError_t error = run(lock, *stream, next.work); error != cudaSuccess) lose(stream->device, error);
    } else if (next.work.kind == Work::Kind::function) {
      keep_uncalled(next.work.context);
    }
    stream->done = next.seq;
    if (next.work.kind == Work::Kind::record && loss == cudaSuccess) {
      next.work.event->completed = next.work.count;
      next.work.event->at = std::chrono::steady_clock::now();
    }
    stream->queue.pop_front();
    changed.notify_all();
  }
}

std::vector<std::string> Machine::describe_alive() const {
  std::vector<std::string> out = pinned.describe_alive();
  const auto several = [&](std::size_t n, const char* what, const char* call) {
    if (n != 0) out.push_back(fmt::format("{} {} never given back by {}", n, what, call));
  };
  several(streams.size(), "streams were", "cudaStreamDestroy");
  several(events.size(), "events were", "cudaEventDestroy");
  several(graphs.size(), "graphs were", "cudaGraphDestroy");
  several(execs.size(), "executable graphs were", "cudaGraphExecDestroy");
  for (const auto& [address, area] : memory)
    out.push_back(fmt::format("{} bytes of device memory were never given back by cudaFreeAsync", area.bytes));
  return out;
}

std::vector<std::string> take_reports() {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  std::vector<std::string> out = std::move(m.reports);
  m.reports.clear();
  for (std::string& touch : m.pinned.take_touches()) out.push_back(std::move(touch));
  return out;
}

void report(std::string sentence) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  m.report(std::move(sentence));
}

std::vector<std::string> leaks() {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  return m.describe_alive();
}

void inject(const Fault& fault) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  m.faults.push_back(fault);
}

std::size_t faults_waiting() {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  return m.faults.size();
}

std::uint64_t calls(Call call) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  return m.calls[static_cast<std::size_t>(call)];
}

void reset(const Options& options) {
  Machine& m = machine();
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(m.mutex);
    for (CUstream_st* stream : m.streams) m.old_streams.emplace_back(stream);
    for (auto& stream : m.old_streams) {
      stream->stop = true;
      threads.push_back(std::move(stream->thread));
    }
  }
  m.changed.notify_all();
  for (std::thread& thread : threads) {
    if (thread.joinable()) thread.join();
  }
  const std::lock_guard lock(m.mutex);
  for (CUevent_st* event : m.events) delete event;
  for (CUgraph_st* graph : m.graphs) delete graph;
  for (CUgraphExec_st* exec : m.execs) delete exec;
  for (const auto& [address, area] : m.memory) std::free(reinterpret_cast<void*>(address));
  m.streams.clear(), m.events.clear(), m.graphs.clear(), m.execs.clear(), m.memory.clear();
  m.old_streams.clear(), m.old_events.clear(), m.old_graphs.clear(), m.old_execs.clear();
  m.pinned.reset();
  m.faults.clear(), m.reports.clear(), m.loaded.clear();
  m.calls = {};
  m.options = options;
  m.dawdle.seed(options.jitter);
  m.lost.assign(static_cast<std::size_t>(options.devices), cudaSuccess);
  m.used.assign(static_cast<std::size_t>(options.devices), 0);
  this_thread() = {};
}

Machine::~Machine() {
  std::vector<std::string> wrong = std::move(reports);
  for (std::string& touch : pinned.take_touches()) wrong.push_back(std::move(touch));
  for (std::string& leak : describe_alive()) wrong.push_back(std::move(leak));
  if (wrong.empty()) {
    reset();
    return;
  }
  for (const std::string& sentence : wrong) std::fprintf(stderr, "fake CUDA: %s\n", sentence.c_str());
  std::fflush(nullptr);
  ::_exit(97);
}

}  // namespace fake_cuda
