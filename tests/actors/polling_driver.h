// Drivers that hand every call on to another one, and change some: the host driver without announcements, as a CUDA
// driver is, whose completions must be asked for.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "device/host/driver.h"

namespace troupe::test {

class ForwardingDriver : public device::Driver {
 public:
  explicit ForwardingDriver(std::unique_ptr<device::Driver> to) : to_(std::move(to)) {}
  std::string name() const override { return to_->name(); }
  Result<void> bind_thread() override { return to_->bind_thread(); }
  Result<device::Stream> create_stream() override { return to_->create_stream(); }
  Result<void> destroy_stream(device::Stream s) override { return to_->destroy_stream(s); }
  Result<device::Event> create_event() override { return to_->create_event(); }
  Result<void> record_event(device::Event e, device::Stream s) override { return to_->record_event(e, s); }
  Result<bool> event_query(device::Event e) override { return to_->event_query(e); }
  Result<void> event_synchronize(device::Event e) override { return to_->event_synchronize(e); }
  Result<void> destroy_event(device::Event e) override { return to_->destroy_event(e); }
  Result<void> notify_event(device::Event e, device::Stream s, device::Notify n) override { return to_->notify_event(e, s, n); }
  Result<void> stream_wait_event(device::Stream s, device::Event e) override { return to_->stream_wait_event(s, e); }
  Result<void> copy_h2d_async(device::DevicePtr d, const void* p, std::size_t n, device::Stream s) override {
    return to_->copy_h2d_async(d, p, n, s);
  }
  Result<void> copy_d2h_async(void* p, device::DevicePtr d, std::size_t n, device::Stream s) override {
    return to_->copy_d2h_async(p, d, n, s);
  }
  Result<void> enqueue_host_function(device::HostFunction f, device::Stream s) override { return to_->enqueue_host_function(f, s); }
  bool runs_kernels() const override { return to_->runs_kernels(); }
  Result<void*> native_stream(device::Stream s) override { return to_->native_stream(s); }
  Result<std::string> kernel_target() override { return to_->kernel_target(); }
  Result<void> launched(device::Stream s) override { return to_->launched(s); }
  Result<device::DevicePtr> alloc_device(std::size_t n) override { return to_->alloc_device(n); }
  Result<void> free_device(device::DevicePtr p, std::size_t n) override { return to_->free_device(p, n); }
  Result<void*> alloc_host_pinned(std::size_t n) override { return to_->alloc_host_pinned(n); }
  Result<void> free_host_pinned(void* p, std::size_t n) override { return to_->free_host_pinned(p, n); }
  Result<void> graph_capture_begin(device::Stream s) override { return to_->graph_capture_begin(s); }
  Result<device::Graph> graph_capture_end(device::Stream s) override { return to_->graph_capture_end(s); }
  Result<void> graph_launch(device::Graph g, device::Stream s) override { return to_->graph_launch(g, s); }
  Result<void> destroy_graph(device::Graph g) override { return to_->destroy_graph(g); }
  device::DriverUsage usage() const override { return to_->usage(); }
  void inject(device::Fault f) override { to_->inject(std::move(f)); }

 private:
  std::unique_ptr<device::Driver> to_;
};

class PollingDriver final : public ForwardingDriver {
 public:
  PollingDriver() : ForwardingDriver(device::make_host_driver()) {}
  std::string name() const override { return "polling"; }
  Result<void> notify_event(device::Event, device::Stream, device::Notify) override {
    return Error{ErrorCode::unsupported, "completions are polled here"};
  }
};

}  // namespace troupe::test
