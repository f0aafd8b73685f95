// A driver that hands every call on to another one: for drivers that change, or watch, some of them. Threads and errors are the
// other one's.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "device/driver.h"

namespace troupe::device {

class ForwardingDriver : public Driver {
 public:
  explicit ForwardingDriver(std::unique_ptr<Driver> to) : to_(std::move(to)) {}
  std::string name() const override { return to_->name(); }
  Result<void> bind_thread() override { return to_->bind_thread(); }
  Result<Stream> create_stream(StreamPriority p) override { return to_->create_stream(p); }
  Result<void> destroy_stream(Stream s) override { return to_->destroy_stream(s); }
  Result<Event> create_event() override { return to_->create_event(); }
  Result<void> record_event(Event e, Stream s) override { return to_->record_event(e, s); }
  Result<bool> event_query(Event e) override { return to_->event_query(e); }
  Result<void> event_synchronize(Event e) override { return to_->event_synchronize(e); }
  Result<void> destroy_event(Event e) override { return to_->destroy_event(e); }
  Result<void> notify_event(Event e, Stream s, Notify n) override { return to_->notify_event(e, s, n); }
  Result<void> stream_wait_event(Stream s, Event e) override { return to_->stream_wait_event(s, e); }
  Result<void> copy_h2d_async(DevicePtr d, const void* p, std::size_t n, Stream s) override { return to_->copy_h2d_async(d, p, n, s); }
  Result<void> copy_d2h_async(void* p, DevicePtr d, std::size_t n, Stream s) override { return to_->copy_d2h_async(p, d, n, s); }
  Result<void> enqueue_host_function(HostFunction f, Stream s) override { return to_->enqueue_host_function(f, s); }
  bool runs_kernels() const override { return to_->runs_kernels(); }
  Result<void*> native_stream(Stream s) override { return to_->native_stream(s); }
  Result<std::string> kernel_target() override { return to_->kernel_target(); }
  Result<void> launched(Stream s) override { return to_->launched(s); }
  Result<DevicePtr> alloc_device(std::size_t n) override { return to_->alloc_device(n); }
  Result<void> free_device(DevicePtr p, std::size_t n) override { return to_->free_device(p, n); }
  Result<void*> alloc_host_pinned(std::size_t n) override { return to_->alloc_host_pinned(n); }
  Result<void> free_host_pinned(void* p, std::size_t n) override { return to_->free_host_pinned(p, n); }
  Result<void> graph_capture_begin(Stream s) override { return to_->graph_capture_begin(s); }
  Result<Graph> graph_capture_end(Stream s) override { return to_->graph_capture_end(s); }
  Result<void> graph_launch(Graph g, Stream s) override { return to_->graph_launch(g, s); }
  Result<void> destroy_graph(Graph g) override { return to_->destroy_graph(g); }
  DriverUsage usage() const override { return to_->usage(); }
  void inject(Fault f) override { to_->inject(f); }

 private:
  std::unique_ptr<Driver> to_;
};

}  // namespace troupe::device
