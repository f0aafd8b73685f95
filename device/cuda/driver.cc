#include "device/cuda/driver.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "device/cuda/errors.h"
#include "device/cuda/memory.h"
#include "device/cuda/open.h"
#include "device/cuda/slots.h"
#include "device/cuda/stream.h"
#include "device/host/faults.h"

namespace troupe::device {
namespace {

Error failed(std::string what) { return Error{ErrorCode::device_failed, std::move(what)}; }

Error injected(ErrorCode code, const char* call) {
  if (code == ErrorCode::device_lost) {
    return Error{code, fmt::format("{}: the device is lost to this process; start another, or use another device", call)};
  }
  return Error{code, fmt::format("{}: the device reports a failure", call)};
}

class CudaDriver final : public Driver {
 public:
  CudaDriver(const CudaDriverOptions& options, cudaStream_t memory_stream)
      : options_(options),
        memory_stream_(memory_stream),
        within_reach_(std::make_unique<WithinReach>(options.max_events)),
        streams_(options.max_streams),
        graphs_(options.max_graphs) {}
  ~CudaDriver() override { give_back(); }

  std::string name() const override { return fmt::format("cuda:{}", options_.index); }

  Result<void> bind_thread() override {
    TROUPE_TRY(checked("bind_thread"));
    return answer(cudaSetDevice(static_cast<int>(options_.index)), "cudaSetDevice");
  }

  Result<Stream> create_stream(StreamPriority priority) override {
    TROUPE_TRY(checked(DriverCall::create_stream, "create_stream"));
    const std::lock_guard lock(mutex_);
    const std::size_t i = free_slot(streams_);
    if (i == streams_.size()) return failed(fmt::format("create_stream: all {} streams are in use; raise max_streams", i));
    cudaStream_t made = nullptr;
    if (priority == StreamPriority::normal) {
      TROUPE_TRY(answer(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "cudaStreamCreateWithFlags"));
    } else {
      int least = 0, greatest = 0;  // both 0: the device knows none
      TROUPE_TRY(answer(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange"));
      TROUPE_TRY(answer(cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, greatest), "cudaStreamCreateWithPriority"));
    }
    streams_[i].stream = std::make_unique<CudaStream>(made, std::max(options_.stream_capacity, 1u), faults_.lost());
    return enliven(streams_, i);
  }

  Result<void> destroy_stream(Stream stream) override {
    TROUPE_TRY(checked("destroy_stream"));
    TROUPE_TRY(CudaStream * s, find_stream(stream, "destroy_stream"));
    if (s->capturing) return failed("destroy_stream: the stream is being captured; end the capture first");
    TROUPE_TRY(const bool idle, ready(cudaStreamQuery(s->get()), "cudaStreamQuery"));
    if (!idle) return failed("destroy_stream: work is queued; wait for an event recorded behind it");
    TROUPE_TRY(answer(cudaStreamDestroy(s->get()), "cudaStreamDestroy"));
    const std::lock_guard lock(mutex_);
    StreamSlot& slot = streams_[index_of(stream)];
    slot.generation.fetch_add(1, std::memory_order_release);
    slot.stream.reset();
    return success();
  }

  Result<Event> create_event() override {
    TROUPE_TRY(checked(DriverCall::create_event, "create_event"));
    const std::lock_guard lock(mutex_);
    const std::size_t i = free_slot(events_);
    if (i == events_.size()) return failed(fmt::format("create_event: all {} events are in use; raise max_events", i));
    CudaEvent& event = events_[i];
    TROUPE_TRY(answer(cudaEventCreateWithFlags(&event.event, cudaEventDisableTiming | cudaEventBlockingSync), "cudaEventCreateWithFlags"));
    event.state.store(CudaEvent::complete, std::memory_order_relaxed);
    event.status.store(ErrorCode::none, std::memory_order_relaxed);
    return enliven(events_, i);
  }

  Result<void> record_event(Event event, Stream stream) override {
    TROUPE_TRY(checked(DriverCall::record_event, "record_event"));
    TROUPE_TRY(CudaEvent * e, find_event(event, "record_event"));
    TROUPE_TRY(CudaStream * s, find_stream(stream, "record_event"));
    TROUPE_TRY(not_capturing(*s, "record_event"));
    TROUPE_TRY(const bool done, complete(*e));
    if (!done) return failed("record_event: the event is pending; wait until it completes, or use another");
    const bool owes = s->owes_status();
    if (owes && s->full()) return overloaded("record_event");
    e->state.store(CudaEvent::recording, std::memory_order_relaxed);
    e->status.store(ErrorCode::none, std::memory_order_relaxed);
    auto recorded = owes ? answer(s->hand_over(*e), "cudaLaunchHostFunc") : success();
    if (recorded) recorded = answer(cudaEventRecord(e->event, s->get()), "cudaEventRecord");
    e->state.store(recorded ? CudaEvent::pending : CudaEvent::complete, std::memory_order_release);
    return recorded;
  }

  Result<bool> event_query(Event event) override {
    TROUPE_TRY(checked(DriverCall::event_query, "event_query"));
    TROUPE_TRY(CudaEvent * e, find_event(event, "event_query"));
    TROUPE_TRY(const bool done, complete(*e));
    if (!done) return false;
    TROUPE_TRY(status_of(*e));
    return true;
  }

  Result<void> event_synchronize(Event event) override {
    TROUPE_TRY(checked("event_synchronize"));
    TROUPE_TRY(CudaEvent * e, find_event(event, "event_synchronize"));
    if (e->state.load(std::memory_order_acquire) == CudaEvent::pending) {
      TROUPE_TRY(answer(cudaEventSynchronize(e->event), "cudaEventSynchronize"));
      e->state.store(CudaEvent::complete, std::memory_order_release);
    }
    return status_of(*e);
  }

  Result<void> destroy_event(Event event) override {
    TROUPE_TRY(checked("destroy_event"));
    TROUPE_TRY(CudaEvent * e, find_event(event, "destroy_event"));
    TROUPE_TRY(const bool done, complete(*e));
    if (!done) return failed("destroy_event: the event is pending; wait until it completes");
    TROUPE_TRY(answer(cudaEventDestroy(e->event), "cudaEventDestroy"));
    const std::lock_guard lock(mutex_);
    e->generation.fetch_add(1, std::memory_order_release);
    return success();
  }

  Result<void> notify_event(Event event, Stream, Notify) override {
    TROUPE_TRY(checked("notify_event"));
    TROUPE_TRY(find_event(event, "notify_event"));
    return Error{ErrorCode::unsupported, "notify_event: CUDA announces no completions; poll them by event_query"};
  }

  Result<void> stream_wait_event(Stream stream, Event event) override {
    TROUPE_TRY(checked(DriverCall::stream_wait_event, "stream_wait_event"));
    TROUPE_TRY(CudaEvent * e, find_event(event, "stream_wait_event"));
    TROUPE_TRY(CudaStream * s, find_stream(stream, "stream_wait_event"));
    TROUPE_TRY(not_capturing(*s, "stream_wait_event"));
    return answer(cudaStreamWaitEvent(s->get(), e->event, 0), "cudaStreamWaitEvent");
  }

  Result<void> copy_h2d_async(DevicePtr dst, const void* src, std::size_t bytes, Stream stream) override {
    TROUPE_TRY(checked(DriverCall::copy_h2d, "copy_h2d_async"));
    return copy(reinterpret_cast<void*>(dst), src, bytes, cudaMemcpyHostToDevice, stream, "copy_h2d_async");
  }

  Result<void> copy_d2h_async(void* dst, DevicePtr src, std::size_t bytes, Stream stream) override {
    TROUPE_TRY(checked(DriverCall::copy_d2h, "copy_d2h_async"));
    return copy(dst, reinterpret_cast<const void*>(src), bytes, cudaMemcpyDeviceToHost, stream, "copy_d2h_async");
  }

  Result<void> enqueue_host_function(HostFunction function, Stream stream) override {
    TROUPE_TRY(checked(DriverCall::enqueue, "enqueue_host_function"));
    TROUPE_TRY(CudaStream * s, find_stream(stream, "enqueue_host_function"));
    TROUPE_TRY(not_capturing(*s, "enqueue_host_function"));
    if (function.run == nullptr) return failed("enqueue_host_function: no function to run");
    if (s->full()) return overloaded("enqueue_host_function");
    return answer(s->enqueue(function), "cudaLaunchHostFunc");
  }

  bool runs_kernels() const override { return true; }
  Result<void*> native_stream(Stream stream) override {
    TROUPE_TRY(checked("native_stream"));
    TROUPE_TRY(CudaStream * s, find_stream(stream, "native_stream"));
    (void)cudaGetLastError();
    return s->get();
  }

  Result<std::string> kernel_target() override {
    TROUPE_TRY(checked("kernel_target"));
    int major = 0, minor = 0;
    const int device = static_cast<int>(options_.index);
    TROUPE_TRY(answer(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute"));
    TROUPE_TRY(answer(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "cudaDeviceGetAttribute"));
    return fmt::format("sm_{}{}", major, minor);
  }

  Result<void> launched(Stream stream) override {
    const cudaError_t error = cudaGetLastError();
    TROUPE_TRY(checked(DriverCall::launch, "launched"));
    TROUPE_TRY(find_stream(stream, "launched"));
    return answer(error, "kernel launch");
  }

  Result<DevicePtr> alloc_device(std::size_t bytes) override {
    TROUPE_TRY(checked(DriverCall::alloc_device, "alloc_device"));
    const std::size_t asked = std::max<std::size_t>(bytes, 1);
    const std::lock_guard lock(memory_mutex_);
    void* ptr = nullptr;
    TROUPE_TRY(answer(cudaMallocAsync(&ptr, asked, memory_stream_), "cudaMallocAsync", bytes));
    auto zeroed = answer(cudaMemsetAsync(ptr, 0, asked, memory_stream_), "cudaMemsetAsync");
    if (zeroed) zeroed = answer(cudaStreamSynchronize(memory_stream_), "cudaStreamSynchronize");
    if (!zeroed) {
      if (lost() || !answer(cudaFreeAsync(ptr, memory_stream_), "cudaFreeAsync")) device_.add(ptr, bytes);  // ours until the end
      return zeroed.error();
    }
    device_.add(ptr, bytes);
    return reinterpret_cast<DevicePtr>(ptr);
  }

  Result<void> free_device(DevicePtr ptr, std::size_t bytes) override {
    TROUPE_TRY(checked("free_device"));
    auto* const address = reinterpret_cast<void*>(ptr);
    const std::lock_guard lock(memory_mutex_);
    TROUPE_TRY(device_.take(address, bytes));
    auto freed = answer(cudaFreeAsync(address, memory_stream_), "cudaFreeAsync");
    if (!freed) device_.add(address, bytes);
    return freed;
  }

  Result<void*> alloc_host_pinned(std::size_t bytes) override {
    TROUPE_TRY(checked(DriverCall::alloc_pinned, "alloc_host_pinned"));
    const std::size_t asked = std::max<std::size_t>(bytes, 1);
    void* ptr = nullptr;
    TROUPE_TRY(answer(cudaHostAlloc(&ptr, asked, cudaHostAllocPortable), "cudaHostAlloc", bytes));
    std::memset(ptr, 0, asked);
    pinned_.add(ptr, bytes);
    return ptr;
  }

  Result<void> free_host_pinned(void* ptr, std::size_t bytes) override {
    TROUPE_TRY(checked("free_host_pinned"));
    TROUPE_TRY(pinned_.take(ptr, bytes));
    auto freed = answer(cudaFreeHost(ptr), "cudaFreeHost");
    if (!freed) pinned_.add(ptr, bytes);
    return freed;
  }

  Result<void> graph_capture_begin(Stream stream) override {
    TROUPE_TRY(checked(DriverCall::graph, "graph_capture_begin"));
    TROUPE_TRY(CudaStream * s, find_stream(stream, "graph_capture_begin"));
    TROUPE_TRY(not_capturing(*s, "graph_capture_begin"));
    TROUPE_TRY(answer(cudaStreamBeginCapture(s->get(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture"));
    s->capturing = true;
    return success();
  }

  Result<Graph> graph_capture_end(Stream stream) override {
    TROUPE_TRY(CudaStream * s, find_stream(stream, "graph_capture_end"));
    if (!s->capturing) return failed("graph_capture_end: the stream is not being captured");
    // The capture ends whatever is injected: a stream that stayed in it would take no work any more.
    const auto wanted = checked(DriverCall::graph, "graph_capture_end");
    if (lost()) return wanted.error();
    cudaGraph_t graph = nullptr;
    auto ended = answer(cudaStreamEndCapture(s->get(), &graph), "cudaStreamEndCapture");
    s->capturing = false;
    if (ended && !wanted) ended = wanted.error();
    auto made = ended ? instantiate(graph) : Result<Graph>(ended.error());
    if (graph != nullptr && (lost() || !answer(cudaGraphDestroy(graph), "cudaGraphDestroy"))) {
      const std::lock_guard lock(mutex_);
      orphans_.push_back(graph);
    }
    return made;
  }

  Result<void> graph_launch(Graph graph, Stream stream) override {
    TROUPE_TRY(checked(DriverCall::graph, "graph_launch"));
    TROUPE_TRY(CudaStream * s, find_stream(stream, "graph_launch"));
    TROUPE_TRY(not_capturing(*s, "graph_launch"));
    TROUPE_TRY(CudaGraph * g, find_graph(graph, "graph_launch"));
    return answer(cudaGraphLaunch(g->exec, s->get()), "cudaGraphLaunch");
  }

  Result<void> destroy_graph(Graph graph) override {
    TROUPE_TRY(checked(DriverCall::graph, "destroy_graph"));
    TROUPE_TRY(CudaGraph * g, find_graph(graph, "destroy_graph"));
    TROUPE_TRY(answer(cudaGraphExecDestroy(g->exec), "cudaGraphExecDestroy"));
    const std::lock_guard lock(mutex_);
    g->generation.fetch_add(1, std::memory_order_release);
    return success();
  }

  DriverUsage usage() const override {
    DriverUsage u{.streams = count_alive(streams_),
                  .events = count_alive(events_),
                  .pinned_bytes = pinned_.bytes(),
                  .device_bytes = device_.bytes(),
                  .graphs = count_alive(graphs_)};
    if (lost()) u.abandoned = u.streams + u.events + u.graphs + pinned_.count() + device_.count();
    return u;
  }

  void inject(Fault fault) override { faults_.inject(fault); }

 private:
  struct StreamSlot {
    std::atomic<std::uint32_t> generation{0};  // odd: alive
    std::unique_ptr<CudaStream> stream;
  };

  bool lost() const { return faults_.check() != ErrorCode::none; }

  Result<void> checked(DriverCall kind, const char* call) {
    const ErrorCode code = faults_.check(kind);
    if (code != ErrorCode::none) return injected(code, call);
    return success();
  }
  Result<void> checked(const char* call) const {
    const ErrorCode code = faults_.check();
    if (code != ErrorCode::none) return injected(code, call);
    return success();
  }

  // What a call of CUDA's answered. A sticky code loses the device.
  Result<void> answer(cudaError_t error, const char* call) {
    if (error == cudaSuccess) return success();
    if (cuda_is_sticky(error)) faults_.lose();
    return cuda_error(error, call);
  }
  // As above, of a call that asked for memory.
  Result<void> answer(cudaError_t error, const char* call, std::size_t bytes) {
    auto out = answer(error, call);
    if (error == cudaErrorMemoryAllocation) {
      out.error().what += fmt::format(": {} has no {} bytes left; ask for fewer KV blocks or a smaller batch",
                                      call == std::string_view("cudaHostAlloc") ? "the machine" : "the device", bytes);
    }
    return out;
  }
  // Of a query: whether it is done. CUDA counts "not ready" as the thread's last error too.
  Result<bool> ready(cudaError_t error, const char* call) {
    if (error == cudaErrorNotReady) {
      (void)cudaGetLastError();
      return false;
    }
    TROUPE_TRY(answer(error, call));
    return true;
  }

  Result<bool> complete(CudaEvent& event) {
    const std::uint32_t state = event.state.load(std::memory_order_acquire);
    if (state != CudaEvent::pending) return state == CudaEvent::complete;
    auto done = ready(cudaEventQuery(event.event), "cudaEventQuery");
    if (!done && !lost()) return false;  // CUDA can't say; the work goes on all the same (R3, R4)
    if (done && done.value()) event.state.store(CudaEvent::complete, std::memory_order_release);
    return done;
  }
  static Result<void> status_of(const CudaEvent& event) {
    const ErrorCode status = event.status.load(std::memory_order_acquire);
    if (status != ErrorCode::none) return Error{status, "work on the stream before this event failed"};
    return success();
  }

  Result<CudaStream*> find_stream(Stream handle, const char* call) {
    StreamSlot* slot = find_slot(streams_, handle);
    if (slot == nullptr) return failed(fmt::format("{}: no such stream", call));
    return slot->stream.get();
  }
  Result<CudaEvent*> find_event(Event handle, const char* call) {
    CudaEvent* event = find_slot(events_, handle);
    if (event == nullptr) return failed(fmt::format("{}: no such event", call));
    return event;
  }
  Result<CudaGraph*> find_graph(Graph handle, const char* call) {
    CudaGraph* graph = find_slot(graphs_, handle);
    if (graph == nullptr) return failed(fmt::format("{}: no such graph", call));
    return graph;
  }

  static Result<void> not_capturing(const CudaStream& stream, const char* call) {
    if (stream.capturing)
      return failed(fmt::format("{}: the stream is being captured, which takes copies and kernels only; end the capture first", call));
    return success();
  }
  Error overloaded(const char* call) const {
    return Error{ErrorCode::overloaded,
                 fmt::format("{}: {} host functions are queued on the stream; enqueue less ahead, or raise stream_capacity", call,
                             options_.stream_capacity)};
  }

  Result<void> copy(void* dst, const void* src, std::size_t bytes, cudaMemcpyKind kind, Stream stream, const char* call) {
    TROUPE_TRY(CudaStream * s, find_stream(stream, call));
    if (bytes == 0) return success();
    if (dst == nullptr || src == nullptr) return failed(fmt::format("{}: null pointer", call));
    return answer(cudaMemcpyAsync(dst, src, bytes, kind, s->get()), "cudaMemcpyAsync");
  }

  Result<Graph> instantiate(cudaGraph_t graph) {
    const std::lock_guard lock(mutex_);
    const std::size_t i = free_slot(graphs_);
    if (i == graphs_.size()) return failed(fmt::format("graph_capture_end: all {} graphs are in use; destroy one", i));
    TROUPE_TRY(answer(cudaGraphInstantiate(&graphs_[i].exec, graph, 0), "cudaGraphInstantiate"));
    return enliven(graphs_, i);
  }

  void give_back();
  void abandon();

  const CudaDriverOptions options_;
  const cudaStream_t memory_stream_;
  // What a host function may touch: left to the process with a stream whose host functions may still run.
  struct WithinReach {
    explicit WithinReach(std::size_t max_events) : events(max_events) {}
    Faults faults;
    std::vector<CudaEvent> events;
  };
  std::unique_ptr<WithinReach> within_reach_;
  Faults& faults_ = within_reach_->faults;
  std::vector<CudaEvent>& events_ = within_reach_->events;
  CudaAllocations device_;
  CudaAllocations pinned_;
  std::mutex memory_mutex_;  // around memory_stream_
  std::mutex mutex_;         // creation and destruction only
  std::vector<StreamSlot> streams_;
  std::vector<CudaGraph> graphs_;
  std::vector<cudaGraph_t> orphans_;  // captured, instantiated, and not destroyed
};

// Streams first: what they still do uses the rest.
void CudaDriver::give_back() {
  (void)answer(cudaSetDevice(static_cast<int>(options_.index)), "cudaSetDevice");
  if (lost()) return abandon();
  // A call that fails is made once more; then its object is left to the process. After a loss none is made.
  const auto call = [this](const char* name, auto* function, auto... arguments) {
    for (int i = 0; i < 2 && !lost(); ++i) {
      if (answer(function(arguments...), name)) return true;
    }
    return false;
  };
  const auto alive = [](const auto& slot) { return slot.generation.load(std::memory_order_relaxed) % 2 == 1; };
  for (StreamSlot& slot : streams_) {
    if (!alive(slot)) continue;
    const cudaStream_t stream = slot.stream->get();
    cudaGraph_t graph = nullptr;
    if (slot.stream->capturing && call("cudaStreamEndCapture", cudaStreamEndCapture, stream, &graph)) orphans_.push_back(graph);
    if (!call("cudaStreamSynchronize", cudaStreamSynchronize, stream)) break;
    (void)call("cudaStreamDestroy", cudaStreamDestroy, stream);
  }
  if (lost()) return abandon();
  for (CudaGraph& graph : graphs_) {
    if (alive(graph)) (void)call("cudaGraphExecDestroy", cudaGraphExecDestroy, graph.exec);
  }
  for (cudaGraph_t graph : orphans_) (void)call("cudaGraphDestroy", cudaGraphDestroy, graph);
  for (CudaEvent& event : events_) {
    if (alive(event)) (void)call("cudaEventDestroy", cudaEventDestroy, event.event);
  }
  for (void* ptr : pinned_.all()) (void)call("cudaFreeHost", cudaFreeHost, ptr);
  for (void* ptr : device_.all()) (void)call("cudaFreeAsync", cudaFreeAsync, ptr, memory_stream_);
  (void)call("cudaStreamSynchronize", cudaStreamSynchronize, memory_stream_);
  (void)call("cudaStreamDestroy", cudaStreamDestroy, memory_stream_);
}

// CUDA does not call what is queued behind the error that lost the device, and nobody can tell whether it has begun to:
// a stream with host functions that were not called is left to the process, with all that they would touch.
void CudaDriver::abandon() {
  bool left = false;
  for (StreamSlot& slot : streams_) {
    if (slot.stream == nullptr) continue;
    (void)answer(cudaStreamSynchronize(slot.stream->get()), "cudaStreamSynchronize");  // at once, if it is CUDA that lost it
    if (slot.stream->idle()) continue;
    (void)slot.stream.release();
    left = true;
  }
  if (left) (void)within_reach_.release();
}

}  // namespace

Result<std::unique_ptr<Driver>> make_cuda_driver(const CudaDriverOptions& options) {
  TROUPE_TRY(const cudaStream_t memory_stream, open_cuda_device(options.index));
  return std::unique_ptr<Driver>(std::make_unique<CudaDriver>(options, memory_stream));
}

}  // namespace troupe::device
