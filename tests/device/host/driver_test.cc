#include "device/host/driver.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <semaphore>
#include <thread>
#include <vector>

#include "tests/device/driver_contract.h"

namespace troupe::device {
namespace {

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

INSTANTIATE_TEST_SUITE_P(Host, DriverContract, testing::Values(DriverKind{.name = "host", .make = [](const ContractLimits& l) {
                                                                            return make_host_driver({.stream_capacity = l.stream_capacity,
                                                                                                     .max_streams = l.max_streams,
                                                                                                     .max_events = l.max_events});
                                                                          }}));

// What is the host driver's own.
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

TEST_F(HostDriverTest, GraphsAreUnsupported) {
  EXPECT_EQ(code_of(driver->graph_capture_begin(stream)), ErrorCode::unsupported);
  EXPECT_EQ(code_of(driver->graph_capture_end(stream)), ErrorCode::unsupported);
  EXPECT_EQ(code_of(driver->graph_launch(1, stream)), ErrorCode::unsupported);
  EXPECT_EQ(code_of(driver->destroy_graph(1)), ErrorCode::unsupported);
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
