// What every driver promises (device/driver.h), as tests with the driver as their parameter. A file that includes this
// instantiates the suite DriverContract with its DriverKind.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <semaphore>
#include <thread>
#include <vector>

#include "device/driver.h"

namespace troupe::device {

struct ContractLimits {
  std::uint32_t stream_capacity = 24;  // the fake CUDA runtime says why not more (kMostHostFunctions)
  std::uint32_t max_streams = 4;
  std::uint32_t max_events = 8;
};

struct DriverKind {
  const char* name;
  std::unique_ptr<Driver> (*make)(const ContractLimits&);
  void (*begin)() = [] {};
  void (*end)() = [] {};                            // after the driver is gone
  void (*claim)(const char*) = [](const char*) {};  // the test did on purpose what a checking runtime reports with this text
  bool graphs = false;
};

inline void PrintTo(const DriverKind& kind, std::ostream* out) { *out << kind.name; }

// A host function that holds its stream until it is opened.
struct Gate {
  std::binary_semaphore entered{0};
  std::binary_semaphore open{0};
  ErrorCode result = ErrorCode::none;
  HostFunction function() {
    return {[](void* context) {
              auto* gate = static_cast<Gate*>(context);
              gate->entered.release();
              gate->open.acquire();
              return gate->result;
            },
            this};
  }
};

struct Append {
  std::vector<int>* to;
  int value;
  HostFunction function() {
    return {[](void* context) {
              auto* a = static_cast<Append*>(context);
              a->to->push_back(a->value);
              return ErrorCode::none;
            },
            this};
  }
};

inline HostFunction fails_with(ErrorCode* code) {
  return {[](void* context) { return *static_cast<ErrorCode*>(context); }, code};
}

template <class T>
ErrorCode code_of(const Result<T>& result) {
  return result.has_error() ? result.error().code : ErrorCode::none;
}

class DriverContract : public ::testing::TestWithParam<DriverKind> {
 protected:
  void SetUp() override {
    GetParam().begin();
    driver = GetParam().make({});
    ASSERT_NE(driver, nullptr);
    ASSERT_FALSE(driver->bind_thread().has_error());
    stream = driver->create_stream().value();
    event = driver->create_event().value();
  }
  void TearDown() override {
    driver.reset();
    GetParam().end();
  }
  void finish(Stream s) {
    ASSERT_FALSE(driver->record_event(event, s).has_error());
    ASSERT_FALSE(driver->event_synchronize(event).has_error());
  }
  template <class T = char>
  T* pinned(std::size_t n) {
    return static_cast<T*>(driver->alloc_host_pinned(n * sizeof(T)).value());
  }

  std::unique_ptr<Driver> driver;
  Stream stream = 0;
  Event event = 0;
};

TEST_P(DriverContract, WorksInOrder) {
  std::vector<int> seen;
  std::vector<Append> appends;
  for (int i = 0; i < 20; ++i) appends.push_back({&seen, i});
  for (auto& a : appends) ASSERT_FALSE(driver->enqueue_host_function(a.function(), stream).has_error());
  finish(stream);
  ASSERT_EQ(seen.size(), 20u);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(seen[static_cast<std::size_t>(i)], i);
}

TEST_P(DriverContract, CopiesTakeTheirTurnOnTheStream) {
  char* up = pinned(8);
  char* down = pinned(8);
  const DevicePtr memory = driver->alloc_device(8).value();
  std::memcpy(up, "payload", 8);
  Gate gate;
  ASSERT_FALSE(driver->enqueue_host_function(gate.function(), stream).has_error());
  ASSERT_FALSE(driver->copy_h2d_async(memory, up, 8, stream).has_error());
  ASSERT_FALSE(driver->copy_d2h_async(down, memory, 8, stream).has_error());
  ASSERT_FALSE(driver->record_event(event, stream).has_error());
  gate.entered.acquire();
  EXPECT_FALSE(driver->event_query(event).value());
  gate.open.release();
  ASSERT_FALSE(driver->event_synchronize(event).has_error());
  EXPECT_TRUE(driver->event_query(event).value());
  EXPECT_STREQ(down, "payload");
  EXPECT_FALSE(driver->free_host_pinned(up, 8).has_error());
  EXPECT_FALSE(driver->free_host_pinned(down, 8).has_error());
  EXPECT_FALSE(driver->free_device(memory, 8).has_error());
}

TEST_P(DriverContract, AnEventThatWasNeverRecordedIsComplete) {
  EXPECT_TRUE(driver->event_query(event).value());
  EXPECT_FALSE(driver->event_synchronize(event).has_error());
}

TEST_P(DriverContract, AStreamWaitsForAnotherStreamsEvent) {
  const Stream other = driver->create_stream().value();
  const Event after = driver->create_event().value();
  std::vector<int> seen;
  Append first{&seen, 1}, second{&seen, 2};
  Gate gate;
  ASSERT_FALSE(driver->enqueue_host_function(gate.function(), stream).has_error());
  ASSERT_FALSE(driver->enqueue_host_function(first.function(), stream).has_error());
  ASSERT_FALSE(driver->record_event(event, stream).has_error());
  ASSERT_FALSE(driver->stream_wait_event(other, event).has_error());
  ASSERT_FALSE(driver->enqueue_host_function(second.function(), other).has_error());
  ASSERT_FALSE(driver->record_event(after, other).has_error());
  gate.entered.acquire();
  EXPECT_FALSE(driver->event_query(after).value());
  gate.open.release();
  ASSERT_FALSE(driver->event_synchronize(after).has_error());
  EXPECT_EQ(seen, (std::vector<int>{1, 2}));
  EXPECT_TRUE(driver->event_query(event).value());
}

TEST_P(DriverContract, WaitingForAnUnrecordedEventWaitsForNothing) {
  const Event never = driver->create_event().value();
  ASSERT_FALSE(driver->stream_wait_event(stream, never).has_error());
  finish(stream);
  GetParam().claim("waits for nothing");
}

TEST_P(DriverContract, AFailedFunctionReachesTheNextEventOnly) {
  ErrorCode bad = ErrorCode::device_failed;
  const Event next = driver->create_event().value();
  ASSERT_FALSE(driver->enqueue_host_function(fails_with(&bad), stream).has_error());
  ASSERT_FALSE(driver->record_event(event, stream).has_error());
  ASSERT_FALSE(driver->record_event(next, stream).has_error());
  EXPECT_EQ(code_of(driver->event_synchronize(event)), ErrorCode::device_failed);
  EXPECT_EQ(code_of(driver->event_query(event)), ErrorCode::device_failed);
  EXPECT_FALSE(driver->event_synchronize(next).has_error());
  finish(stream);  // recorded again, the event forgets it
}

TEST_P(DriverContract, RefusesWhatWouldBreakAPendingEvent) {
  Gate gate;
  ASSERT_FALSE(driver->enqueue_host_function(gate.function(), stream).has_error());
  ASSERT_FALSE(driver->record_event(event, stream).has_error());
  gate.entered.acquire();
  EXPECT_EQ(code_of(driver->record_event(event, stream)), ErrorCode::device_failed);
  EXPECT_EQ(code_of(driver->destroy_event(event)), ErrorCode::device_failed);
  EXPECT_EQ(code_of(driver->destroy_stream(stream)), ErrorCode::device_failed);
  gate.open.release();
  ASSERT_FALSE(driver->event_synchronize(event).has_error());
  EXPECT_FALSE(driver->destroy_event(event).has_error());
  EXPECT_FALSE(driver->destroy_stream(stream).has_error());
}

TEST_P(DriverContract, AHandleDiesWithItsObject) {
  ASSERT_FALSE(driver->destroy_event(event).has_error());
  const Event successor = driver->create_event().value();
  EXPECT_NE(successor, event);
  EXPECT_EQ(code_of(driver->event_query(event)), ErrorCode::device_failed);
  EXPECT_EQ(code_of(driver->destroy_event(event)), ErrorCode::device_failed);
  EXPECT_EQ(code_of(driver->record_event(event, stream)), ErrorCode::device_failed);
  EXPECT_EQ(code_of(driver->record_event(0, stream)), ErrorCode::device_failed);
  EXPECT_EQ(code_of(driver->record_event(successor, 0)), ErrorCode::device_failed);
  EXPECT_EQ(code_of(driver->record_event(2, stream)), ErrorCode::device_failed) << "not a handle at all";
  EXPECT_EQ(code_of(driver->record_event(successor, 2)), ErrorCode::device_failed);
  ASSERT_FALSE(driver->destroy_stream(stream).has_error());
  const Stream next = driver->create_stream().value();
  EXPECT_NE(next, stream);
  EXPECT_EQ(code_of(driver->record_event(successor, stream)), ErrorCode::device_failed);
  EXPECT_FALSE(driver->record_event(successor, next).has_error());
}

TEST_P(DriverContract, AFullQueueIsAnErrorAndNotAWait) {
  Gate gate;
  std::vector<int> seen;
  Append append{&seen, 1};
  ASSERT_FALSE(driver->enqueue_host_function(gate.function(), stream).has_error());
  gate.entered.acquire();
  for (int i = 0; i < 23; ++i) ASSERT_FALSE(driver->enqueue_host_function(append.function(), stream).has_error()) << i;
  EXPECT_EQ(code_of(driver->enqueue_host_function(append.function(), stream)), ErrorCode::overloaded);
  EXPECT_EQ(code_of(driver->record_event(event, stream)), ErrorCode::overloaded);
  EXPECT_TRUE(driver->event_query(event).value()) << "a record that was refused leaves the event as it was";
  gate.open.release();
  while (driver->enqueue_host_function(append.function(), stream).has_error()) std::this_thread::yield();
  while (driver->record_event(event, stream).has_error()) std::this_thread::yield();
  ASSERT_FALSE(driver->event_synchronize(event).has_error());
  EXPECT_EQ(seen.size(), 24u);
}

TEST_P(DriverContract, HandlesRunOutWithAnError) {
  for (int i = 0; i < 7; ++i) ASSERT_FALSE(driver->create_event().has_error());
  EXPECT_EQ(code_of(driver->create_event()), ErrorCode::device_failed);
  for (int i = 0; i < 3; ++i) ASSERT_FALSE(driver->create_stream().has_error());
  EXPECT_EQ(code_of(driver->create_stream()), ErrorCode::device_failed);
}

TEST_P(DriverContract, MemoryIsZeroedAlignedAndCounted) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{1000}, std::size_t{3} << 20}) {
    const DriverUsage before = driver->usage();
    auto* host = pinned<unsigned char>(bytes);
    const DevicePtr memory = driver->alloc_device(bytes).value();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(host) % 64, 0u);
    EXPECT_EQ(memory % 64, 0u);
    for (std::size_t i = 0; i < bytes; ++i) ASSERT_EQ(host[i], 0);
    std::memset(host, 1, bytes);
    ASSERT_FALSE(driver->copy_d2h_async(host, memory, bytes, stream).has_error());
    finish(stream);
    for (std::size_t i = 0; i < bytes; ++i) ASSERT_EQ(host[i], 0) << "on the device";
    EXPECT_EQ(driver->usage().pinned_bytes, before.pinned_bytes + bytes);
    EXPECT_EQ(driver->usage().device_bytes, before.device_bytes + bytes);
    EXPECT_EQ(code_of(driver->free_host_pinned(host, bytes + 1)), ErrorCode::device_failed) << "wrong size";
    EXPECT_EQ(code_of(driver->free_device(reinterpret_cast<DevicePtr>(host), bytes)), ErrorCode::device_failed) << "not device memory";
    EXPECT_FALSE(driver->free_host_pinned(host, bytes).has_error());
    EXPECT_EQ(code_of(driver->free_host_pinned(host, bytes)), ErrorCode::device_failed) << "freed before";
    EXPECT_FALSE(driver->free_device(memory, bytes).has_error());
    EXPECT_EQ(driver->usage().pinned_bytes, before.pinned_bytes);
    EXPECT_EQ(driver->usage().device_bytes, before.device_bytes);
  }
  EXPECT_EQ(code_of(driver->alloc_device(std::size_t{1} << 62)), ErrorCode::device_failed);
  EXPECT_EQ(code_of(driver->alloc_host_pinned(std::size_t{1} << 62)), ErrorCode::device_failed);
}

TEST_P(DriverContract, UsageShowsWhatLeaks) {
  EXPECT_EQ(driver->usage().streams, 1u);
  EXPECT_EQ(driver->usage().events, 1u);
  ASSERT_FALSE(driver->destroy_event(event).has_error());
  ASSERT_FALSE(driver->destroy_stream(stream).has_error());
  EXPECT_EQ(driver->usage().streams, 0u);
  EXPECT_EQ(driver->usage().events, 0u);
  EXPECT_EQ(driver->usage().pinned_bytes, 0u);
  EXPECT_EQ(driver->usage().device_bytes, 0u);
  EXPECT_EQ(driver->usage().abandoned, 0u);
}

TEST_P(DriverContract, CopiesOfNothingAndFromNowhere) {
  char c = 0;
  EXPECT_FALSE(driver->copy_h2d_async(0, nullptr, 0, stream).has_error());
  EXPECT_EQ(code_of(driver->copy_h2d_async(0, &c, 1, stream)), ErrorCode::device_failed);
  EXPECT_EQ(code_of(driver->enqueue_host_function({}, stream)), ErrorCode::device_failed);
}

TEST_P(DriverContract, EveryCallCanBeMadeToFailAtItsNth) {
  char* host = pinned(1);
  ErrorCode fine = ErrorCode::none;
  const DevicePtr address = driver->alloc_device(1).value();
  const auto call = [&](DriverCall kind) -> ErrorCode {
    switch (kind) {
      case DriverCall::create_stream: {
        auto made = driver->create_stream();
        if (made.has_value()) {
          EXPECT_FALSE(driver->destroy_stream(made.value()).has_error());
        }
        return code_of(made);
      }
      case DriverCall::create_event: {
        auto made = driver->create_event();
        if (made.has_value()) {
          EXPECT_FALSE(driver->destroy_event(made.value()).has_error());
        }
        return code_of(made);
      }
      case DriverCall::record_event: {
        auto done = driver->record_event(event, stream);
        EXPECT_FALSE(driver->event_synchronize(event).has_error());
        return code_of(done);
      }
      case DriverCall::event_query:
        return code_of(driver->event_query(event));
      case DriverCall::stream_wait_event: {
        EXPECT_FALSE(driver->record_event(event, stream).has_error());
        auto done = driver->stream_wait_event(stream, event);
        EXPECT_FALSE(driver->event_synchronize(event).has_error());
        return code_of(done);
      }
      case DriverCall::copy_h2d:
        return code_of(driver->copy_h2d_async(address, host, 1, stream));
      case DriverCall::copy_d2h:
        return code_of(driver->copy_d2h_async(host, address, 1, stream));
      case DriverCall::enqueue:
        return code_of(driver->enqueue_host_function(fails_with(&fine), stream));
      case DriverCall::alloc_device: {
        auto made = driver->alloc_device(16);
        if (made.has_value()) {
          EXPECT_FALSE(driver->free_device(made.value(), 16).has_error());
        }
        return code_of(made);
      }
      case DriverCall::alloc_pinned: {
        auto made = driver->alloc_host_pinned(16);
        if (made.has_value()) {
          EXPECT_FALSE(driver->free_host_pinned(made.value(), 16).has_error());
        }
        return code_of(made);
      }
      case DriverCall::graph:
        return code_of(driver->graph_launch(1, stream));  // no such graph
      case DriverCall::launch:
        return code_of(driver->launched(stream));
      case DriverCall::count:
        break;
    }
    return ErrorCode::internal;
  };
  for (std::uint8_t k = 0; k < static_cast<std::uint8_t>(DriverCall::count); ++k) {
    const auto kind = static_cast<DriverCall>(k);
    SCOPED_TRACE(static_cast<int>(k));
    const ErrorCode graphs = GetParam().graphs ? ErrorCode::device_failed : ErrorCode::unsupported;  // there is no graph 1
    const ErrorCode launches = GetParam().graphs ? ErrorCode::none : ErrorCode::unsupported;
    const ErrorCode usual = kind == DriverCall::graph ? graphs : kind == DriverCall::launch ? launches : ErrorCode::none;
    driver->inject({.call = kind, .nth = 3, .code = ErrorCode::io_failed});
    EXPECT_EQ(call(kind), usual);
    EXPECT_EQ(call(kind == DriverCall::event_query ? DriverCall::enqueue : DriverCall::event_query), ErrorCode::none)
        << "another kind does not count";
    EXPECT_EQ(call(kind), usual);
    EXPECT_EQ(call(kind), ErrorCode::io_failed);
    EXPECT_EQ(call(kind), usual) << "once";
  }
  finish(stream);
}

TEST_P(DriverContract, AStickyFaultLosesTheDevice) {
  std::vector<int> seen;
  Append append{&seen, 1};
  // Before the gate: CUDA may let an allocation wait for a host function of any stream.
  (void)pinned(100);
  ASSERT_FALSE(driver->alloc_device(1).has_error());
  Gate gate;
  ASSERT_FALSE(driver->enqueue_host_function(gate.function(), stream).has_error());
  ASSERT_FALSE(driver->enqueue_host_function(append.function(), stream).has_error());
  ASSERT_FALSE(driver->record_event(event, stream).has_error());
  gate.entered.acquire();
  driver->inject({.call = DriverCall::event_query, .nth = 2, .code = ErrorCode::device_lost, .sticky = true});
  EXPECT_FALSE(driver->event_query(event).has_error());
  EXPECT_EQ(code_of(driver->event_query(event)), ErrorCode::device_lost);
  gate.open.release();
  EXPECT_EQ(code_of(driver->event_query(event)), ErrorCode::device_lost);
  EXPECT_EQ(code_of(driver->event_synchronize(event)), ErrorCode::device_lost);
  EXPECT_EQ(code_of(driver->create_event()), ErrorCode::device_lost);
  EXPECT_EQ(code_of(driver->alloc_device(1)), ErrorCode::device_lost);
  EXPECT_EQ(code_of(driver->destroy_event(event)), ErrorCode::device_lost);
  EXPECT_EQ(code_of(driver->destroy_stream(stream)), ErrorCode::device_lost);
  EXPECT_EQ(code_of(driver->bind_thread()), ErrorCode::device_lost);
  EXPECT_EQ(driver->usage().events, 1u);
  EXPECT_EQ(driver->usage().abandoned, 4u) << "a stream, an event and two areas";
  driver.reset();
  GetParam().claim("never given back");
  EXPECT_TRUE(seen.empty()) << "what was queued falls away";
}

TEST_P(DriverContract, TheDestructorWorksOffWhatIsQueued) {
  std::vector<int> seen;
  Append append{&seen, 1};
  Gate gate;
  ASSERT_FALSE(driver->enqueue_host_function(gate.function(), stream).has_error());
  for (int i = 0; i < 23; ++i) ASSERT_FALSE(driver->enqueue_host_function(append.function(), stream).has_error());
  gate.entered.acquire();
  gate.open.release();
  driver.reset();
  EXPECT_EQ(seen.size(), 23u);
}

}  // namespace troupe::device
