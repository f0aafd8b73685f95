// The host driver: the CPU as a device. A stream is a thread with a bounded FIFO, an event completes when its stream
// reaches it, and copies are asynchronous for real (the stream's thread makes them). Completions are announced
// (notify_event); nothing needs polling. Page-locked memory is plain memory here: nothing but this process reads it.
//
// Errors: device_failed for a handle or a pointer that is not alive, for destroying or recording again a pending
// event, for destroying a stream with work; overloaded when a stream's FIFO is full; after a sticky fault every call
// answers its code, functions and copies still queued are skipped, and their events complete with that code.
//
// Threads: as device/driver.h says. The destructor works off what is queued, joins every stream's thread and frees
// what is left; so a host function that never returns would hold it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "device/driver.h"

namespace troupe::device {

struct HostDriverOptions {
  std::uint32_t index = 0;               // in the name: "host:0"
  std::uint32_t stream_capacity = 1024;  // operations queued on one stream
  std::uint32_t max_streams = 8;
  std::uint32_t max_events = 1024;
  std::chrono::nanoseconds spin = {};  // how long a stream's thread spins before it parks; 0 = parks at once
};

std::unique_ptr<Driver> make_host_driver(const HostDriverOptions& options = {});

}  // namespace troupe::device
