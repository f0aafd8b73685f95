#include "device/host/driver.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <semaphore>
#include <thread>
#include <vector>

namespace troupe::device {
namespace {

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

HostFunction fails_with(ErrorCode* code) {
  return {[](void* context) { return *static_cast<ErrorCode*>(context); }, code};
}

struct Call {
  std::binary_semaphore done{0};
  std::atomic<int> times{0};
  Event event = 0;
  ErrorCode status = ErrorCode::internal;
  std::thread::id thread;
  Notify notify() {
    return {[](void* context, Event event, ErrorCode status) {
              auto* call = static_cast<Call*>(context);
              call->event = event;
              call->status = status;
              call->thread = std::this_thread::get_id();
              call->times.fetch_add(1);
              call->done.release();
            },
            this};
  }
};

template <class T> ErrorCode code_of(const Result<T>& result) { return result.has_error() ? result.error().code : ErrorCode::none; }

class HostDriverTest : public ::testing::Test {
 protected:
  void SetUp() override {
    driver = make_host_driver({.index = 3, .stream_capacity = 64, .max_streams = 4, .max_events = 8});
    ASSERT_FALSE(driver->bind_thread().has_error());
    stream = driver->create_stream().value();
    event = driver->create_event().value();
  }
  void finish(Stream s) {
    ASSERT_FALSE(driver->record_event(event, s).has_error());
    ASSERT_FALSE(driver->event_synchronize(event).has_error());
  }

  std::unique_ptr<Driver> driver;
  Stream stream = 0;
  Event event = 0;
};

TEST_F(HostDriverTest, NamesItself) { EXPECT_EQ(driver->name(), "host:3"); }

TEST_F(HostDriverTest, WorksInOrder) {
  std::vector<int> seen;
  std::vector<Append> appends;
  for (int i = 0; i < 50; ++i) appends.push_back({&seen, i});
  for (auto& a : appends) ASSERT_FALSE(driver->enqueue_host_function(a.function(), stream).has_error());
  finish(stream);
  ASSERT_EQ(seen.size(), 50u);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(seen[static_cast<std::size_t>(i)], i);
}

TEST_F(HostDriverTest, CopiesHappenOnTheStreamAndNotBefore) {
  auto* up = static_cast<char*>(driver->alloc_host_pinned(8).value());
  auto* down = static_cast<char*>(driver->alloc_host_pinned(8).value());
  const DevicePtr memory = driver->alloc_device(8).value();
  std::memcpy(up, "before!", 8);
  Gate gate;
  ASSERT_FALSE(driver->enqueue_host_function(gate.function(), stream).has_error());
  ASSERT_FALSE(driver->copy_h2d_async(memory, up, 8, stream).has_error());
  ASSERT_FALSE(driver->copy_d2h_async(down, memory, 8, stream).has_error());
  ASSERT_FALSE(driver->record_event(event, stream).has_error());
  gate.entered.acquire();
  EXPECT_STREQ(down, "");
  EXPECT_FALSE(driver->event_query(event).value());
  std::memcpy(up, "behind!", 8);  // the copy has not read its source yet
  gate.open.release();
  ASSERT_FALSE(driver->event_synchronize(event).has_error());
  EXPECT_TRUE(driver->event_query(event).value());
  EXPECT_STREQ(down, "behind!");
  EXPECT_FALSE(driver->free_host_pinned(up, 8).has_error());
  EXPECT_FALSE(driver->free_host_pinned(down, 8).has_error());
  EXPECT_FALSE(driver->free_device(memory, 8).has_error());
}

TEST_F(HostDriverTest, AnEventThatWasNeverRecordedIsComplete) {
  EXPECT_TRUE(driver->event_query(event).value());
  EXPECT_FALSE(driver->event_synchronize(event).has_error());
}

TEST_F(HostDriverTest, NotifiesOnceFromTheStreamsThread) {
  Call call;
  Gate gate;
  EXPECT_EQ(code_of(driver->notify_event(event, stream, call.notify())), ErrorCode::device_failed) << "not recorded yet";
  ASSERT_FALSE(driver->enqueue_host_function(gate.function(), stream).has_error());
  ASSERT_FALSE(driver->record_event(event, stream).has_error());
  ASSERT_FALSE(driver->notify_event(event, stream, call.notify()).has_error());
  gate.entered.acquire();
  EXPECT_EQ(call.times, 0);
  gate.open.release();
  call.done.acquire();
  // Who was told may destroy both at once.
  EXPECT_FALSE(driver->destroy_event(event).has_error());
  EXPECT_FALSE(driver->destroy_stream(stream).has_error());
  EXPECT_EQ(call.times, 1);
  EXPECT_EQ(call.event, event);
  EXPECT_EQ(call.status, ErrorCode::none);
  EXPECT_NE(call.thread, std::this_thread::get_id());
}

TEST_F(HostDriverTest, AStreamWaitsForAnotherStreamsEvent) {
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

TEST_F(HostDriverTest, WaitingForAnUnrecordedEventWaitsForNothing) {
  const Event never = driver->create_event().value();
  ASSERT_FALSE(driver->stream_wait_event(stream, never).has_error());
  finish(stream);
}

TEST_F(HostDriverTest, AFailedFunctionReachesTheNextEventOnly) {
  ErrorCode bad = ErrorCode::device_failed;
  const Event next = driver->create_event().value();
  Call call;
  ASSERT_FALSE(driver->enqueue_host_function(fails_with(&bad), stream).has_error());
  ASSERT_FALSE(driver->record_event(event, stream).has_error());
  ASSERT_FALSE(driver->notify_event(event, stream, call.notify()).has_error());
  ASSERT_FALSE(driver->record_event(next, stream).has_error());
  call.done.acquire();
  EXPECT_EQ(call.status, ErrorCode::device_failed);
  EXPECT_EQ(code_of(driver->event_synchronize(event)), ErrorCode::device_failed);
  EXPECT_EQ(code_of(driver->event_query(event)), ErrorCode::device_failed);
  EXPECT_FALSE(driver->event_synchronize(next).has_error());
  finish(stream);  // recorded again, the event forgets it
}

TEST_F(HostDriverTest, RefusesWhatWouldBreakAPendingEvent) {
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

TEST_F(HostDriverTest, AHandleDiesWithItsObject) {
  ASSERT_FALSE(driver->destroy_event(event).has_error());
  const Event successor = driver->create_event().value();
  EXPECT_NE(successor, event);
  EXPECT_EQ(code_of(driver->event_query(event)), ErrorCode::device_failed);
  EXPECT_EQ(code_of(driver->destroy_event(event)), ErrorCode::device_failed);
  EXPECT_EQ(code_of(driver->record_event(event, stream)), ErrorCode::device_failed);
  EXPECT_EQ(code_of(driver->record_event(0, stream)), ErrorCode::device_failed);
  EXPECT_EQ(code_of(driver->record_event(successor, 0)), ErrorCode::device_failed);
  ASSERT_FALSE(driver->destroy_stream(stream).has_error());
  const Stream next = driver->create_stream().value();
  EXPECT_NE(next, stream);
  EXPECT_EQ(code_of(driver->record_event(successor, stream)), ErrorCode::device_failed);
  EXPECT_FALSE(driver->record_event(successor, next).has_error());
}

TEST_F(HostDriverTest, AFullQueueIsAnErrorAndNotAWait) {
  Gate gate;
  std::vector<int> seen;
  Append append{&seen, 1};
  ASSERT_FALSE(driver->enqueue_host_function(gate.function(), stream).has_error());
  gate.entered.acquire();
  for (int i = 0; i < 63; ++i) ASSERT_FALSE(driver->enqueue_host_function(append.function(), stream).has_error()) << i;
  EXPECT_EQ(code_of(driver->enqueue_host_function(append.function(), stream)), ErrorCode::overloaded);
  EXPECT_EQ(code_of(driver->record_event(event, stream)), ErrorCode::overloaded);
  EXPECT_TRUE(driver->event_query(event).value()) << "a record that was refused leaves the event as it was";
  gate.open.release();
  while (driver->enqueue_host_function(append.function(), stream).has_error()) std::this_thread::yield();
  while (driver->record_event(event, stream).has_error()) std::this_thread::yield();
  ASSERT_FALSE(driver->event_synchronize(event).has_error());
  EXPECT_EQ(seen.size(), 64u);
}

TEST_F(HostDriverTest, HandlesRunOutWithAnError) {
  for (int i = 0; i < 7; ++i) ASSERT_FALSE(driver->create_event().has_error());
  EXPECT_EQ(code_of(driver->create_event()), ErrorCode::device_failed);
  for (int i = 0; i < 3; ++i) ASSERT_FALSE(driver->create_stream().has_error());
  EXPECT_EQ(code_of(driver->create_stream()), ErrorCode::device_failed);
}

TEST_F(HostDriverTest, MemoryIsZeroedAlignedAndCounted) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{1000}, std::size_t{3} << 20}) {
    const DriverUsage before = driver->usage();
    auto* pinned = static_cast<unsigned char*>(driver->alloc_host_pinned(bytes).value());
    const DevicePtr memory = driver->alloc_device(bytes).value();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pinned) % 64, 0u);
    EXPECT_EQ(memory % 64, 0u);
    for (std::size_t i = 0; i < bytes; ++i) ASSERT_EQ(pinned[i] | reinterpret_cast<unsigned char*>(memory)[i], 0);
    pinned[bytes - 1] = 1;
    EXPECT_EQ(driver->usage().pinned_bytes, before.pinned_bytes + bytes);
    EXPECT_EQ(driver->usage().device_bytes, before.device_bytes + bytes);
    EXPECT_EQ(code_of(driver->free_host_pinned(pinned, bytes + 1)), ErrorCode::device_failed) << "wrong size";
    EXPECT_EQ(code_of(driver->free_device(reinterpret_cast<DevicePtr>(pinned), bytes)), ErrorCode::device_failed) << "not device memory";
    EXPECT_FALSE(driver->free_host_pinned(pinned, bytes).has_error());
    EXPECT_EQ(code_of(driver->free_host_pinned(pinned, bytes)), ErrorCode::device_failed) << "freed before";
    EXPECT_FALSE(driver->free_device(memory, bytes).has_error());
    EXPECT_EQ(driver->usage().pinned_bytes, before.pinned_bytes);
    EXPECT_EQ(driver->usage().device_bytes, before.device_bytes);
  }
  EXPECT_EQ(code_of(driver->alloc_device(std::size_t{1} << 62)), ErrorCode::device_failed);
}

TEST_F(HostDriverTest, UsageShowsWhatLeaks) {
  EXPECT_EQ(driver->usage().streams, 1u);
  EXPECT_EQ(driver->usage().events, 1u);
  ASSERT_FALSE(driver->destroy_event(event).has_error());
  ASSERT_FALSE(driver->destroy_stream(stream).has_error());
  EXPECT_EQ(driver->usage().streams, 0u);
  EXPECT_EQ(driver->usage().events, 0u);
  EXPECT_EQ(driver->usage().pinned_bytes, 0u);
  EXPECT_EQ(driver->usage().device_bytes, 0u);
}

TEST_F(HostDriverTest, GraphsAreUnsupported) {
  EXPECT_EQ(code_of(driver->graph_capture_begin(stream)), ErrorCode::unsupported);
  EXPECT_EQ(code_of(driver->graph_capture_end(stream)), ErrorCode::unsupported);
  EXPECT_EQ(code_of(driver->graph_launch(1, stream)), ErrorCode::unsupported);
  EXPECT_EQ(code_of(driver->destroy_graph(1)), ErrorCode::unsupported);
}

TEST_F(HostDriverTest, CopiesOfNothingAndFromNowhere) {
  char c = 0;
  EXPECT_FALSE(driver->copy_h2d_async(0, nullptr, 0, stream).has_error());
  EXPECT_EQ(code_of(driver->copy_h2d_async(0, &c, 1, stream)), ErrorCode::device_failed);
  EXPECT_EQ(code_of(driver->enqueue_host_function({}, stream)), ErrorCode::device_failed);
}

TEST_F(HostDriverTest, EveryCallCanBeMadeToFailAtItsNth) {
  char c = 0, d = 0;
  ErrorCode fine = ErrorCode::none;
  const auto address = reinterpret_cast<DevicePtr>(&d);
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
      case DriverCall::event_query: return code_of(driver->event_query(event));
      case DriverCall::stream_wait_event: return code_of(driver->stream_wait_event(stream, event));
      case DriverCall::copy_h2d: return code_of(driver->copy_h2d_async(address, &c, 1, stream));
      case DriverCall::copy_d2h: return code_of(driver->copy_d2h_async(&c, address, 1, stream));
      case DriverCall::enqueue: return code_of(driver->enqueue_host_function(fails_with(&fine), stream));
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
      case DriverCall::graph: return code_of(driver->graph_launch(1, stream));
      case DriverCall::count: break;
    }
    return ErrorCode::internal;
  };
  for (std::uint8_t k = 0; k < static_cast<std::uint8_t>(DriverCall::count); ++k) {
    const auto kind = static_cast<DriverCall>(k);
    SCOPED_TRACE(static_cast<int>(k));
    const ErrorCode usual = kind == DriverCall::graph ? ErrorCode::unsupported : ErrorCode::none;
    driver->inject({.call = kind, .nth = 3, .code = ErrorCode::io_failed});
    EXPECT_EQ(call(kind), usual);
    EXPECT_EQ(call(kind == DriverCall::event_query ? DriverCall::enqueue : DriverCall::event_query), ErrorCode::none) << "another kind does not count";
    EXPECT_EQ(call(kind), usual);
    EXPECT_EQ(call(kind), ErrorCode::io_failed);
    EXPECT_EQ(call(kind), usual) << "once";
  }
  finish(stream);
}

TEST_F(HostDriverTest, AStickyFaultLosesTheDevice) {
  std::vector<int> seen;
  Append append{&seen, 1};
  Gate gate;
  Call call;
  ASSERT_FALSE(driver->enqueue_host_function(gate.function(), stream).has_error());
  ASSERT_FALSE(driver->enqueue_host_function(append.function(), stream).has_error());
  ASSERT_FALSE(driver->record_event(event, stream).has_error());
  ASSERT_FALSE(driver->notify_event(event, stream, call.notify()).has_error());
  gate.entered.acquire();
  driver->inject({.call = DriverCall::event_query, .nth = 2, .code = ErrorCode::device_lost, .sticky = true});
  EXPECT_FALSE(driver->event_query(event).has_error());
  EXPECT_EQ(code_of(driver->event_query(event)), ErrorCode::device_lost);
  gate.open.release();
  call.done.acquire();
  EXPECT_EQ(call.status, ErrorCode::device_lost) << "what was queued completes, with the loss";
  EXPECT_TRUE(seen.empty());
  EXPECT_EQ(code_of(driver->event_query(event)), ErrorCode::device_lost);
  EXPECT_EQ(code_of(driver->create_event()), ErrorCode::device_lost);
  EXPECT_EQ(code_of(driver->alloc_device(1)), ErrorCode::device_lost);
  EXPECT_EQ(code_of(driver->destroy_event(event)), ErrorCode::device_lost);
  EXPECT_EQ(code_of(driver->bind_thread()), ErrorCode::device_lost);
  EXPECT_EQ(driver->usage().events, 1u) << "abandoned";
}

TEST_F(HostDriverTest, TheDestructorWorksOffWhatIsQueued) {
  std::vector<int> seen;
  Append append{&seen, 1};
  Gate gate;
  ASSERT_FALSE(driver->enqueue_host_function(gate.function(), stream).has_error());
  for (int i = 0; i < 63; ++i) ASSERT_FALSE(driver->enqueue_host_function(append.function(), stream).has_error());
  gate.entered.acquire();
  gate.open.release();
  driver.reset();
  EXPECT_EQ(seen.size(), 63u);
}

// A producer and a watcher on two threads, streams that park between pieces of work: no wake-up is lost and every
// record is seen exactly once.
TEST(HostDriverStress, NoWakeUpIsLost) {
  for (const std::chrono::nanoseconds spin : {std::chrono::nanoseconds(0), std::chrono::nanoseconds(20000)}) {
    auto driver = make_host_driver({.stream_capacity = 16, .spin = spin});
    const Stream a = driver->create_stream().value();
    const Stream b = driver->create_stream().value();
    const Event on_a = driver->create_event().value();
    const Event on_b = driver->create_event().value();
    std::uint64_t count = 0;
    Call call;
    const HostFunction add{[](void* context) {
                             ++*static_cast<std::uint64_t*>(context);
                             return ErrorCode::none;
                           },
                           &count};
    constexpr std::uint64_t kRounds = 3000;
    for (std::uint64_t i = 0; i < kRounds; ++i) {
      ASSERT_FALSE(driver->enqueue_host_function(add, a).has_error());
      ASSERT_FALSE(driver->record_event(on_a, a).has_error());
      ASSERT_FALSE(driver->stream_wait_event(b, on_a).has_error());
      ASSERT_FALSE(driver->enqueue_host_function(add, b).has_error());
      ASSERT_FALSE(driver->record_event(on_b, b).has_error());
      ASSERT_FALSE(driver->notify_event(on_b, b, call.notify()).has_error());
      call.done.acquire();
      ASSERT_TRUE(driver->event_query(on_a).value());
      ASSERT_TRUE(driver->event_query(on_b).value());
      ASSERT_EQ(count, 2 * (i + 1));
    }
    EXPECT_EQ(call.times, static_cast<int>(kRounds));
  }
}

}  // namespace
}  // namespace troupe::device
