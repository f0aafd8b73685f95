// Every CUDA call that the driver makes, failing at each of its first times, once or for good: a life of a driver that does
// everything ends, the error is one of the two that the contract knows, nothing is done wrong, and nothing leaks that is
// not abandoned with a lost device.
#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "device/cuda/driver.h"
#include "tests/fake_cuda/fixture.h"

namespace troupe::device {
namespace {

// What a life saw.
struct Life {
  std::vector<std::string> unknown;  // errors that are neither device_failed nor device_lost
  bool failed = false;
  bool lost = false;
  DriverUsage left;
  std::uint64_t calls = 0;  // of the kind asked for, before the destructor's
  std::optional<Error> no_driver;
};

class Living {
 public:
  explicit Living(Life& life) : life_(life) {}
  // Notes the error; whether there was none.
  template <class T>
  bool ok(const Result<T>& result) {
    if (result) return true;
    life_.failed = true;
    if (result.error().code == ErrorCode::device_lost) {
      life_.lost = true;
    } else if (life_.lost || result.error().code != ErrorCode::device_failed) {
      life_.unknown.push_back(result.error().what);  // also: an error after the loss that does not say so
    }
    return false;
  }

 private:
  Life& life_;
};

ErrorCode nothing(void*) { return ErrorCode::none; }

Life live(fake_cuda::Call call) {
  Life life;
  Living is(life);
  auto made = make_cuda_driver();
  if (!made) {
    life.no_driver = made.error();
    life.calls = fake_cuda::calls(call);
    return life;
  }
  Driver& d = *made.value();
  (void)is.ok(d.bind_thread());
  Stream streams[2] = {};
  Event events[3] = {};
  char* host[2] = {};
  DevicePtr memory = 0;
  Graph graph = 0;
  for (Stream& s : streams) {
    if (auto r = d.create_stream(&s == streams ? StreamPriority::high : StreamPriority::normal); is.ok(r)) s = r.value();
  }
  for (Event& e : events) {
    if (auto r = d.create_event(); is.ok(r)) e = r.value();
  }
  for (char*& h : host) {
    if (auto r = d.alloc_host_pinned(64); is.ok(r)) h = static_cast<char*>(r.value());
  }
  if (auto r = d.alloc_device(64); is.ok(r)) memory = r.value();
  const bool whole =
      streams[0] != 0 && streams[1] != 0 && events[2] != 0 && events[1] != 0 && events[0] != 0 && host[0] && host[1] && memory;
  if (whole) {
    if (is.ok(d.graph_capture_begin(streams[0]))) {
      (void)is.ok(d.copy_h2d_async(memory, host[0], 64, streams[0]));
      if (auto r = d.graph_capture_end(streams[0]); is.ok(r)) graph = r.value();
    }
    for (int step = 0; step < 3; ++step) {
      if (graph != 0) (void)is.ok(d.graph_launch(graph, streams[0]));
      (void)is.ok(d.copy_h2d_async(memory, host[0], 64, streams[0]));
      (void)is.ok(d.enqueue_host_function({nothing, nullptr}, streams[0]));
      const bool recorded = is.ok(d.record_event(events[0], streams[0]));
      if (recorded) (void)is.ok(d.stream_wait_event(streams[1], events[0]));
      (void)is.ok(d.copy_d2h_async(host[1], memory, 64, streams[1]));
      if (!is.ok(d.record_event(events[1], streams[1]))) continue;
      for (;;) {
        auto done = d.event_query(events[1]);
        if (!is.ok(done) ? life.lost : done.value()) break;
      }
      (void)is.ok(d.event_synchronize(events[1]));
    }
    // What failed half-way is still on the streams: drain them, as a runtime does before it gives anything back.
    for (int i = 0; i < 2 && !life.lost; ++i) {
      for (int tries = 0; tries < 3 && !is.ok(d.record_event(events[2], streams[i])); ++tries) (void)d.event_synchronize(events[2]);
      for (int tries = 0; tries < 3 && !is.ok(d.event_synchronize(events[2])); ++tries) {
      }
    }
  }
  const auto twice = [&](auto&& f) { (void)(is.ok(f()) || is.ok(f())); };
  if (graph != 0) twice([&] { return d.destroy_graph(graph); });
  for (Stream s : streams) {
    if (s != 0) twice([&] { return d.destroy_stream(s); });
  }
  for (Event e : events) {
    if (e != 0) twice([&] { return d.destroy_event(e); });
  }
  for (char* h : host) {
    if (h != nullptr) twice([&] { return d.free_host_pinned(h, 64); });
  }
  if (memory != 0) twice([&] { return d.free_device(memory, 64); });
  life.left = d.usage();
  life.calls = fake_cuda::calls(call);
  return life;
}

struct Outcome {
  const char* name;
  cudaError_t error;
  bool sticky;
};

class EveryCall : public testing::TestWithParam<std::tuple<fake_cuda::Call, Outcome>> {};

TEST_P(EveryCall, FailsOnceOrForGood) {
  const auto [call, outcome] = GetParam();
  fake_cuda::reset();
  const std::uint64_t times = live(call).calls;
  fake_cuda::expect_clean();
  ASSERT_GT(times, 0u) << "the driver does not make this call";
  for (std::uint64_t nth = 1; nth <= std::min<std::uint64_t>(times, 12); ++nth) {
    SCOPED_TRACE("time " + std::to_string(nth));
    fake_cuda::reset();
    fake_cuda::inject({.call = call, .nth = nth, .error = outcome.error, .sticky = outcome.sticky});
    const Life life = live(call);
    for (const std::string& what : life.unknown) ADD_FAILURE() << what;
    if (call == fake_cuda::Call::cudaEventQuery && life.calls < nth) continue;  // polled less often this time: no error came
    if (life.no_driver) {
      EXPECT_EQ(life.no_driver->code, ErrorCode::unsupported);
    } else if (!outcome.sticky && call == fake_cuda::Call::cudaEventQuery) {
      // Which query is the nth depends on how long the streams take: one that polls is asked again, one that an operation
      // makes on its way fails that operation. What must hold of both is below.
    } else if (!outcome.sticky && call == fake_cuda::Call::cudaGraphDestroy) {
      EXPECT_FALSE(life.failed) << "the driver bears it: it destroys the graph later";
    } else {
      EXPECT_TRUE(life.failed) << "nobody heard of the error";
      EXPECT_EQ(life.lost, outcome.sticky);
    }
    // A loss abandons what was alive, all of it counted; an error that passes leaves nothing.
    const std::uint64_t alive =
        life.left.streams + life.left.events + life.left.graphs + (life.left.pinned_bytes + life.left.device_bytes) / 64;
    EXPECT_EQ(life.left.abandoned, outcome.sticky ? alive : 0u);
    for (const std::string& report : fake_cuda::take_reports()) ADD_FAILURE() << report;
    if (!outcome.sticky) {
      for (const std::string& leak : fake_cuda::leaks()) ADD_FAILURE() << leak;
    }
    fake_cuda::reset();
  }
}

std::vector<fake_cuda::Call> every_call() {
  std::vector<fake_cuda::Call> out;
  for (std::size_t i = 0; i < fake_cuda::kCalls; ++i) {
    const auto call = static_cast<fake_cuda::Call>(i);
    // Not the driver's: a model launches, a benchmark asks for the time.
    if (call != fake_cuda::Call::kernel_launch && call != fake_cuda::Call::cudaEventElapsedTime) out.push_back(call);
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(
    Table, EveryCall,
    testing::Combine(testing::ValuesIn(every_call()),
                     testing::Values(Outcome{"once", cudaErrorInvalidValue, false}, Outcome{"sticky", cudaErrorIllegalAddress, true})),
    [](const auto& info) { return std::string(fake_cuda::name(std::get<0>(info.param))) + "_" + std::get<1>(info.param).name; });

}  // namespace
}  // namespace troupe::device
