#include "device/host/driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <system_error>
#include <vector>

#include "device/host/faults.h"
#include "device/host/memory.h"
#include "device/host/stream.h"

namespace troupe::device {
namespace {

Error failed(std::string what) { return Error{ErrorCode::device_failed, std::move(what)}; }

Error injected(ErrorCode code, const char* call) { return Error{code, fmt::format("{}: the device reports a failure", call)}; }

// A handle is {generation, index + 1}: one that was destroyed is never taken for its successor.
std::uint64_t to_handle(std::uint32_t generation, std::size_t index) { return std::uint64_t{generation} << 32 | (index + 1); }

class HostDriver final : public Driver {
 public:
  explicit HostDriver(const HostDriverOptions& options) : options_(options), streams_(options.max_streams), events_(options.max_events) {}

  ~HostDriver() override {
    for (StreamSlot& slot : streams_) slot.stream.reset();
  }

  std::string name() const override { return fmt::format("host:{}", options_.index); }

  Result<void> bind_thread() override { return checked("bind_thread"); }

  Result<Stream> create_stream(StreamPriority) override {
    TROUPE_TRY(checked(DriverCall::create_stream, "create_stream"));
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      StreamSlot& slot = streams_[i];
      if (slot.stream != nullptr) continue;
      try {
        slot.stream = std::make_unique<HostStream>(std::max(options_.stream_capacity, 1u), options_.spin, faults_.lost());
      } catch (const std::system_error& e) {
        return failed(fmt::format("create_stream: the system gives no thread ({})", e.what()));
      }
      const std::uint32_t generation = slot.generation.fetch_add(1, std::memory_order_release) + 1;
      n_streams_.fetch_add(1, std::memory_order_relaxed);
      return to_handle(generation, i);
    }
    return failed(fmt::format("create_stream: all {} streams are in use; raise max_streams", streams_.size()));
  }

  Result<void> destroy_stream(Stream stream) override {
    TROUPE_TRY(checked("destroy_stream"));
    TROUPE_TRY(HostStream * s, find_stream(stream, "destroy_stream"));
    if (!s->idle()) return failed("destroy_stream: work is queued; wait for an event recorded behind it");
    if (s->on_own_thread()) return failed("destroy_stream: called from the stream's own thread");
    std::unique_ptr<HostStream> gone;  // joins after the lock is free
    const std::lock_guard lock(mutex_);
    StreamSlot& slot = streams_[index_of(stream)];
    slot.generation.fetch_add(1, std::memory_order_release);
    gone = std::move(slot.stream);
    n_streams_.fetch_sub(1, std::memory_order_relaxed);
    return success();
  }

  Result<Event> create_event() override {
    TROUPE_TRY(checked(DriverCall::create_event, "create_event"));
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < events_.size(); ++i) {
      HostEvent& event = events_[i];
      if (event.generation.load(std::memory_order_relaxed) % 2 == 1) continue;
      event.status.store(ErrorCode::none, std::memory_order_relaxed);
      event.stream.store(0, std::memory_order_relaxed);
      const std::uint32_t generation = event.generation.fetch_add(1, std::memory_order_release) + 1;
      n_events_.fetch_add(1, std::memory_order_relaxed);
      return to_handle(generation, i);
    }
    return failed(fmt::format("create_event: all {} events are in use; raise max_events", events_.size()));
  }

  Result<void> record_event(Event event, Stream stream) override {
    TROUPE_TRY(checked(DriverCall::record_event, "record_event"));
    TROUPE_TRY(HostEvent * e, find_event(event, "record_event"));
    TROUPE_TRY(HostStream * s, find_stream(stream, "record_event"));
    if (e->pending()) return failed("record_event: the event is pending; wait until it completes, or use another");
    if (s->full()) return overloaded("record_event");
    const std::uint32_t count = e->recorded.load(std::memory_order_relaxed) + 1;
    e->stream.store(stream, std::memory_order_relaxed);
    e->recorded.store(count, std::memory_order_release);
    s->push({.kind = StreamOp::Kind::record, .event = e, .count = count});
    return success();
  }

  Result<bool> event_query(Event event) override {
    TROUPE_TRY(checked(DriverCall::event_query, "event_query"));
    TROUPE_TRY(HostEvent * e, find_event(event, "event_query"));
    if (e->pending()) return false;
    TROUPE_TRY(status_of(*e));
    return true;
  }

  Result<void> event_synchronize(Event event) override {
    TROUPE_TRY(checked("event_synchronize"));
    TROUPE_TRY(HostEvent * e, find_event(event, "event_synchronize"));
    e->wait(e->recorded.load(std::memory_order_acquire));
    return status_of(*e);
  }

  Result<void> destroy_event(Event event) override {
    TROUPE_TRY(checked("destroy_event"));
    TROUPE_TRY(HostEvent * e, find_event(event, "destroy_event"));
    if (e->pending() || e->notifies.load(std::memory_order_acquire) != 0) {
      return failed("destroy_event: the event is pending; wait until it completes");
    }
    const std::lock_guard lock(mutex_);
    e->generation.fetch_add(1, std::memory_order_release);
    n_events_.fetch_sub(1, std::memory_order_relaxed);
    return success();
  }

  Result<void> notify_event(Event event, Stream stream, Notify notify) override {
    TROUPE_TRY(checked("notify_event"));
    TROUPE_TRY(HostEvent * e, find_event(event, "notify_event"));
    TROUPE_TRY(HostStream * s, find_stream(stream, "notify_event"));
    if (notify.call == nullptr) return failed("notify_event: no function to call");
    if (e->stream.load(std::memory_order_relaxed) != stream) {
      return failed("notify_event: record the event on this stream first");
    }
    e->notifies.fetch_add(1, std::memory_order_relaxed);
    if (s->push({.kind = StreamOp::Kind::notify, .event = e, .handle = event, .notify = notify})) return success();
    e->notifies.fetch_sub(1, std::memory_order_relaxed);
    return overloaded("notify_event");
  }

  Result<void> stream_wait_event(Stream stream, Event event) override {
    TROUPE_TRY(checked(DriverCall::stream_wait_event, "stream_wait_event"));
    TROUPE_TRY(HostEvent * e, find_event(event, "stream_wait_event"));
    TROUPE_TRY(HostStream * s, find_stream(stream, "stream_wait_event"));
    const std::uint32_t count = e->recorded.load(std::memory_order_acquire);
    if (!s->push({.kind = StreamOp::Kind::wait, .event = e, .count = count})) return overloaded("stream_wait_event");
    return success();
  }

  Result<void> copy_h2d_async(DevicePtr dst, const void* src, std::size_t bytes, Stream stream) override {
    TROUPE_TRY(checked(DriverCall::copy_h2d, "copy_h2d_async"));
    return copy(reinterpret_cast<void*>(dst), src, bytes, stream, "copy_h2d_async");
  }

  Result<void> copy_d2h_async(void* dst, DevicePtr src, std::size_t bytes, Stream stream) override {
    TROUPE_TRY(checked(DriverCall::copy_d2h, "copy_d2h_async"));
    return copy(dst, reinterpret_cast<const void*>(src), bytes, stream, "copy_d2h_async");
  }

  Result<void> enqueue_host_function(HostFunction function, Stream stream) override {
    TROUPE_TRY(checked(DriverCall::enqueue, "enqueue_host_function"));
    TROUPE_TRY(HostStream * s, find_stream(stream, "enqueue_host_function"));
    if (function.run == nullptr) return failed("enqueue_host_function: no function to run");
    if (!s->push({.kind = StreamOp::Kind::function, .function = function})) return overloaded("enqueue_host_function");
    return success();
  }

  Result<DevicePtr> alloc_device(std::size_t bytes) override {
    TROUPE_TRY(checked(DriverCall::alloc_device, "alloc_device"));
    TROUPE_TRY(void* ptr, device_.alloc(bytes));
    return reinterpret_cast<DevicePtr>(ptr);
  }

  Result<void> free_device(DevicePtr ptr, std::size_t bytes) override {
    TROUPE_TRY(checked("free_device"));
    return device_.free(reinterpret_cast<void*>(ptr), bytes);
  }

  Result<void*> alloc_host_pinned(std::size_t bytes) override {
    TROUPE_TRY(checked(DriverCall::alloc_pinned, "alloc_host_pinned"));
    return pinned_.alloc(bytes);
  }

  Result<void> free_host_pinned(void* ptr, std::size_t bytes) override {
    TROUPE_TRY(checked("free_host_pinned"));
    return pinned_.free(ptr, bytes);
  }

  bool runs_kernels() const override { return false; }
  Result<void*> native_stream(Stream) override { return no_kernels("native_stream"); }
  Result<void> launched(Stream) override {
    TROUPE_TRY(checked(DriverCall::launch, "launched"));
    return no_kernels("launched");
  }
  Result<std::string> kernel_target() override { return no_kernels("kernel_target"); }

  Result<void> graph_capture_begin(Stream) override { return no_graphs("graph_capture_begin"); }
  Result<Graph> graph_capture_end(Stream) override {
    TROUPE_TRY(no_graphs("graph_capture_end"));
    return Graph{0};
  }
  Result<void> graph_launch(Graph, Stream) override { return no_graphs("graph_launch"); }
  Result<void> destroy_graph(Graph) override { return no_graphs("destroy_graph"); }

  DriverUsage usage() const override {
    DriverUsage u{.streams = n_streams_.load(std::memory_order_relaxed),
                  .events = n_events_.load(std::memory_order_relaxed),
                  .pinned_bytes = pinned_.bytes(),
                  .device_bytes = device_.bytes()};
    if (faults_.check() != ErrorCode::none) u.abandoned = u.streams + u.events + pinned_.count() + device_.count();
    return u;
  }

  void inject(Fault fault) override { faults_.inject(fault); }

 private:
  struct StreamSlot {
    std::atomic<std::uint32_t> generation{0};  // odd: alive
    std::unique_ptr<HostStream> stream;
  };

  static bool is_handle(std::uint64_t handle) { return (handle >> 32) % 2 == 1; }
  static std::size_t index_of(std::uint64_t handle) { return (handle & 0xFFFFFFFFu) - 1; }

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

  Result<HostStream*> find_stream(Stream handle, const char* call) {
    const std::size_t i = index_of(handle);
    if (!is_handle(handle) || i >= streams_.size() || streams_[i].generation.load(std::memory_order_acquire) != handle >> 32) {
      return failed(fmt::format("{}: no such stream", call));
    }
    return streams_[i].stream.get();
  }

  Result<HostEvent*> find_event(Event handle, const char* call) {
    const std::size_t i = index_of(handle);
    if (!is_handle(handle) || i >= events_.size() || events_[i].generation.load(std::memory_order_acquire) != handle >> 32) {
      return failed(fmt::format("{}: no such event", call));
    }
    return &events_[i];
  }

  static Result<void> status_of(const HostEvent& event) {
    const ErrorCode status = event.status.load(std::memory_order_relaxed);
    if (status != ErrorCode::none) return Error{status, "work on the stream before this event failed"};
    return success();
  }

  Error overloaded(const char* call) const {
    return Error{ErrorCode::overloaded,
                 fmt::format("{}: {} operations are queued on the stream; enqueue less ahead, or raise stream_capacity", call,
                             options_.stream_capacity)};
  }

  Result<void> copy(void* dst, const void* src, std::size_t bytes, Stream stream, const char* call) {
    TROUPE_TRY(HostStream * s, find_stream(stream, call));
    if (bytes == 0) return success();
    if (dst == nullptr || src == nullptr) return failed(fmt::format("{}: null pointer", call));
    if (!s->push({.kind = StreamOp::Kind::copy, .dst = dst, .src = src, .bytes = bytes})) return overloaded(call);
    return success();
  }

  static Error no_kernels(const char* call) {
    return Error{ErrorCode::unsupported, fmt::format("{}: the host driver has no kernels; enqueue a host function", call)};
  }
  Result<void> no_graphs(const char* call) {
    TROUPE_TRY(checked(DriverCall::graph, call));
    return Error{ErrorCode::unsupported, fmt::format("{}: the host driver has no graphs; enqueue the work itself", call)};
  }

  const HostDriverOptions options_;
  Faults faults_;
  HostMemory device_;
  HostMemory pinned_;
  std::mutex mutex_;  // creation and destruction only
  std::vector<StreamSlot> streams_;
  std::vector<HostEvent> events_;
  std::atomic<std::uint64_t> n_streams_{0};
  std::atomic<std::uint64_t> n_events_{0};
};

}  // namespace

std::unique_ptr<Driver> make_host_driver(const HostDriverOptions& options) { return std::make_unique<HostDriver>(options); }

}  // namespace troupe::device
