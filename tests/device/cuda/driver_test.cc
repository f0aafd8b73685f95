// The CUDA driver on the fake runtime: the contract of every driver, and what is CUDA's own. After each test the fake has
// nothing to report and nothing is left.
#include "device/cuda/driver.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "tests/device/driver_contract.h"
#include "tests/fake_cuda/fixture.h"

namespace troupe::device {
namespace {

void claim(const char* part) {
  if (std::string_view(part) == "never given back") return fake_cuda::claim_leaks();
  fake_cuda::claim_reports(part);
}

INSTANTIATE_TEST_SUITE_P(Cuda, DriverContract,
                         testing::Values(DriverKind{.name = "cuda",
                                                    .make =
                                                        [](const ContractLimits& l) {
                                                          return std::move(make_cuda_driver({.stream_capacity = l.stream_capacity,
                                                                                             .max_streams = l.max_streams,
                                                                                             .max_events = l.max_events})
                                                                               .value());
                                                        },
                                                    .begin = [] { fake_cuda::reset(); },
                                                    .end = [] { fake_cuda::expect_clean(); },
                                                    .claim = claim,
                                                    .graphs = true}));

class CudaDriverTest : public fake_cuda::Fixture {
 protected:
  void SetUp() override {
    fake_cuda::reset({.devices = 2});
    driver = std::move(make_cuda_driver({.index = 1}).value());
    stream = driver->create_stream().value();
    event = driver->create_event().value();
  }
  void TearDown() override {
    driver.reset();
    Fixture::TearDown();
  }
  void finish() {
    ASSERT_FALSE(driver->record_event(event, stream).has_error());
    ASSERT_FALSE(driver->event_synchronize(event).has_error());
  }
  std::unique_ptr<Driver> driver;
  Stream stream = 0;
  Event event = 0;
};

TEST_F(CudaDriverTest, NamesItselfAndPolls) {
  EXPECT_EQ(driver->name(), "cuda:1");
  EXPECT_EQ(code_of(driver->notify_event(event, stream, {[](void*, Event, ErrorCode) {}, nullptr})), ErrorCode::unsupported);
}

TEST_F(CudaDriverTest, AStreamOfHighPriorityIsTheDevicesHighest) {
  const Stream high = driver->create_stream(StreamPriority::high).value();
  EXPECT_EQ(fake_cuda::priority(static_cast<cudaStream_t>(driver->native_stream(high).value())), fake_cuda::kGreatestPriority);
  EXPECT_EQ(fake_cuda::priority(static_cast<cudaStream_t>(driver->native_stream(stream).value())), 0);
  EXPECT_FALSE(driver->destroy_stream(high).has_error());
  fake_cuda::inject({.call = fake_cuda::Call::cudaDeviceGetStreamPriorityRange, .nth = 1, .error = cudaErrorInvalidValue});
  EXPECT_EQ(code_of(driver->create_stream(StreamPriority::high)), ErrorCode::device_failed);
  EXPECT_EQ(fake_cuda::calls(fake_cuda::Call::cudaStreamCreateWithPriority), 1u);
}

TEST_F(CudaDriverTest, AnEventThatIsCompleteIsNotAskedForAgain) {
  EXPECT_TRUE(driver->event_query(event).value());
  EXPECT_EQ(fake_cuda::calls(fake_cuda::Call::cudaEventQuery), 0u) << "never recorded";
  finish();
  EXPECT_TRUE(driver->event_query(event).value());
  EXPECT_EQ(fake_cuda::calls(fake_cuda::Call::cudaEventQuery), 0u) << "seen complete";
}

TEST_F(CudaDriverTest, EachThreadBindsItsDevice) {
  std::thread([&] {
    ASSERT_FALSE(driver->bind_thread().has_error());
    finish();
  }).join();
  EXPECT_TRUE(fake_cuda::take_reports().empty());
  std::thread([&] { EXPECT_EQ(code_of(driver->record_event(event, stream)), ErrorCode::device_failed); }).join();
  const auto reports = fake_cuda::take_reports();
  EXPECT_TRUE(fake_cuda::any_says(reports, "never called cudaSetDevice"));
  EXPECT_TRUE(fake_cuda::any_says(reports, "the stream is of device 1, and the thread's device is 0"));
  finish();
}

// "pinned-poison": who launches a kernel next looks at cudaGetLastError, and must not find an older call's error there.
TEST_F(CudaDriverTest, AFailedCallLeavesNoErrorBehind) {
  EXPECT_EQ(code_of(driver->alloc_host_pinned(std::size_t{1} << 60)), ErrorCode::device_failed);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  auto memory = driver->alloc_device(std::size_t{1} << 60);
  EXPECT_EQ(code_of(memory), ErrorCode::device_failed);
  EXPECT_NE(memory.error().what.find("ask for fewer KV blocks"), std::string::npos) << memory.error().what;
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  Gate gate;
  ASSERT_FALSE(driver->enqueue_host_function(gate.function(), stream).has_error());
  ASSERT_FALSE(driver->record_event(event, stream).has_error());
  EXPECT_FALSE(driver->event_query(event).value());
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "'not ready' counts as an error in CUDA";
  gate.open.release();
  ASSERT_FALSE(driver->event_synchronize(event).has_error());
}

TEST_F(CudaDriverTest, AGraphIsCapturedWhileAnotherThreadPolls) {
  auto* up = static_cast<char*>(driver->alloc_host_pinned(16).value());
  auto* down = static_cast<char*>(driver->alloc_host_pinned(16).value());
  const DevicePtr memory = driver->alloc_device(16).value();
  const Stream other = driver->create_stream().value();
  Gate gate;
  ASSERT_FALSE(driver->enqueue_host_function(gate.function(), other).has_error());
  ASSERT_FALSE(driver->record_event(event, other).has_error());
  ASSERT_FALSE(driver->graph_capture_begin(stream).has_error());
  std::thread([&] {
    ASSERT_FALSE(driver->bind_thread().has_error());
    EXPECT_FALSE(driver->event_query(event).value());
  }).join();
  const Event mine = driver->create_event().value();
  EXPECT_EQ(code_of(driver->record_event(mine, stream)), ErrorCode::device_failed);
  EXPECT_EQ(code_of(driver->stream_wait_event(stream, event)), ErrorCode::device_failed);
  EXPECT_EQ(code_of(driver->enqueue_host_function(gate.function(), stream)), ErrorCode::device_failed);
  EXPECT_EQ(code_of(driver->graph_capture_begin(stream)), ErrorCode::device_failed);
  EXPECT_EQ(code_of(driver->destroy_stream(stream)), ErrorCode::device_failed);
  ASSERT_FALSE(driver->copy_h2d_async(memory, up, 16, stream).has_error());
  ASSERT_FALSE(driver->copy_d2h_async(down, memory, 16, stream).has_error());
  const Graph graph = driver->graph_capture_end(stream).value();
  EXPECT_EQ(driver->usage().graphs, 1u);
  gate.open.release();
  ASSERT_FALSE(driver->event_synchronize(event).has_error());
  for (int i = 1; i < 4; ++i) {
    std::memset(up, i, 16);
    ASSERT_FALSE(driver->graph_launch(graph, stream).has_error());
    finish();
    EXPECT_EQ(down[15], i) << "replayed with what is there now";
  }
  EXPECT_FALSE(driver->destroy_graph(graph).has_error());
  EXPECT_EQ(code_of(driver->graph_launch(graph, stream)), ErrorCode::device_failed);
  EXPECT_EQ(code_of(driver->destroy_graph(graph)), ErrorCode::device_failed);
  EXPECT_EQ(code_of(driver->graph_capture_end(stream)), ErrorCode::device_failed);
  EXPECT_EQ(driver->usage().graphs, 0u);
}

TEST_F(CudaDriverTest, ABrokenCaptureIsAnErrorAndTheStreamWorksAgain) {
  ASSERT_FALSE(driver->graph_capture_begin(stream).has_error());
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaErrorInvalidResourceHandle);
  (void)fake_cuda::take_reports();
  void* mine = nullptr;
  EXPECT_EQ(cudaHostAlloc(&mine, 1, 0), cudaErrorStreamCaptureUnsupported) << "by the capturing thread itself";
  fake_cuda::claim_reports("the capture is broken");
  EXPECT_EQ(code_of(driver->graph_capture_end(stream)), ErrorCode::device_failed);
  EXPECT_EQ(driver->usage().graphs, 0u);
  finish();
}

// Another library's capture in global mode: the poll breaks it (which is theirs to mend), and ours goes on.
TEST_F(CudaDriverTest, AQueryThatCudaRefusesIsAskedAgain) {
  ASSERT_FALSE(driver->record_event(event, stream).has_error());
  cudaStream_t theirs = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&theirs, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(theirs, cudaStreamCaptureModeGlobal), cudaSuccess);
  std::thread([&] {
    ASSERT_FALSE(driver->bind_thread().has_error());
    EXPECT_FALSE(driver->event_query(event).value());
  }).join();
  fake_cuda::claim_reports("global mode");
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(theirs, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaStreamDestroy(theirs), cudaSuccess);
  while (!driver->event_query(event).value()) std::this_thread::yield();
}

// The destructor gives back what is left, the capture that was never ended too.
TEST_F(CudaDriverTest, TheDestructorGivesBackWhatIsLeft) {
  ASSERT_FALSE(driver->alloc_host_pinned(16).has_error());
  ASSERT_FALSE(driver->alloc_device(16).has_error());
  ASSERT_FALSE(driver->graph_capture_begin(stream).has_error());
  ASSERT_FALSE(driver->graph_capture_end(stream).has_error());
  ASSERT_FALSE(driver->graph_capture_begin(stream).has_error());
  driver.reset();
  EXPECT_TRUE(fake_cuda::leaks().empty());
}

// The device's own error, found by whichever call comes next; everything after it says so, at once.
TEST_F(CudaDriverTest, AnErrorOfTheDeviceLosesIt) {
  const Event behind = driver->create_event().value();
  std::atomic<int> ran{0};
  const HostFunction count{[](void* n) {
                             ++*static_cast<std::atomic<int>*>(n);
                             return ErrorCode::none;
                           },
                           &ran};
  Gate gate;
  ASSERT_FALSE(driver->enqueue_host_function(gate.function(), stream).has_error());
  ASSERT_FALSE(driver->record_event(event, stream).has_error());
  ASSERT_FALSE(driver->enqueue_host_function(count, stream).has_error());
  ASSERT_FALSE(driver->record_event(behind, stream).has_error());
  fake_cuda::inject({.call = fake_cuda::Call::cudaEventQuery, .nth = 2, .error = cudaErrorIllegalAddress, .sticky = true});
  EXPECT_FALSE(driver->event_query(event).value());
  auto lost = driver->event_query(event);
  EXPECT_EQ(code_of(lost), ErrorCode::device_lost);
  EXPECT_NE(lost.error().what.find("cudaErrorIllegalAddress"), std::string::npos) << lost.error().what;
  const std::uint64_t asked = fake_cuda::calls(fake_cuda::Call::cudaEventQuery);
  EXPECT_EQ(code_of(driver->event_query(behind)), ErrorCode::device_lost);
  EXPECT_EQ(fake_cuda::calls(fake_cuda::Call::cudaEventQuery), asked) << "CUDA is not asked again";
  EXPECT_EQ(code_of(driver->event_synchronize(behind)), ErrorCode::device_lost);
  EXPECT_EQ(code_of(driver->create_stream()), ErrorCode::device_lost);
  EXPECT_EQ(code_of(driver->destroy_stream(stream)), ErrorCode::device_lost);
  EXPECT_EQ(driver->usage().abandoned, 3u) << "a stream and two events";
  gate.open.release();
  driver.reset();
  fake_cuda::claim_leaks();
  EXPECT_EQ(ran, 0);
}

TEST(CudaDriverStart, SaysWhyThereIsNoDevice) {
  struct Case {
    fake_cuda::Options machine;
    std::uint32_t index;
    const char* says;
  };
  for (const Case& c :
       {Case{{.driver_installed = false}, 0, "no NVIDIA driver"},
        Case{{.driver_version = 12040}, 0, "the NVIDIA driver is for CUDA 12.4, and this build needs one for CUDA 13"},
        Case{{.devices = 0}, 0, "no NVIDIA device"}, Case{{.devices = 2}, 2, "this machine has 2 NVIDIA devices, counted from 0"},
        Case{{.compute_capability = 75}, 0, "compute capability 7.5, and the kernels need 8.0"},
        Case{{.memory_pools = false}, 0, "no memory pools"}}) {
    fake_cuda::reset(c.machine);
    auto driver = make_cuda_driver({.index = c.index});
    ASSERT_FALSE(driver);
    EXPECT_EQ(driver.error().code, ErrorCode::unsupported);
    EXPECT_NE(driver.error().what.find(c.says), std::string::npos) << driver.error().what;
    EXPECT_NE(driver.error().what.find("--device host:0"), std::string::npos) << driver.error().what;
    fake_cuda::expect_clean();
  }
}

// CUDA's words: "the process must be terminated and relaunched".
TEST(CudaErrors, WhatEndsTheProcesssWorkLosesTheDevice) {
  for (const cudaError_t error : {cudaErrorIllegalAddress, cudaErrorContained, cudaErrorMpsClientTerminated}) {
    fake_cuda::reset();
    auto driver = std::move(make_cuda_driver().value());
    fake_cuda::inject({.call = fake_cuda::Call::cudaEventCreateWithFlags, .nth = 1, .error = error, .sticky = true});
    EXPECT_EQ(code_of(driver->create_event()), ErrorCode::device_lost) << error;
    driver.reset();
    fake_cuda::claim_leaks();
  }
}

// A producer and a watcher on two threads and two streams that dawdle: every completion is found by asking.
TEST(CudaDriverStress, PollingMissesNothing) {
  fake_cuda::reset({.jitter = 11});
  auto driver = std::move(make_cuda_driver({.stream_capacity = 16}).value());
  const Stream a = driver->create_stream().value();
  const Stream b = driver->create_stream().value();
  const Event on_a = driver->create_event().value();
  const Event on_b = driver->create_event().value();
  auto* up = static_cast<std::uint64_t*>(driver->alloc_host_pinned(8).value());
  auto* down = static_cast<std::uint64_t*>(driver->alloc_host_pinned(8).value());
  const DevicePtr memory = driver->alloc_device(8).value();
  std::atomic<std::uint64_t> recorded{0};
  std::atomic<std::uint64_t> seen{0};
  constexpr std::uint64_t kRounds = 300;
  std::thread watcher([&] {
    ASSERT_FALSE(driver->bind_thread().has_error());
    for (std::uint64_t i = 1; i <= kRounds; ++i) {
      while (recorded < i || !driver->event_query(on_b).value()) std::this_thread::yield();
      EXPECT_EQ(*down, i);
      EXPECT_TRUE(driver->event_query(on_a).value());
      seen = i;
    }
  });
  for (std::uint64_t i = 1; i <= kRounds; ++i) {
    *up = i;
    ASSERT_FALSE(driver->copy_h2d_async(memory, up, 8, a).has_error());
    ASSERT_FALSE(driver->record_event(on_a, a).has_error());
    ASSERT_FALSE(driver->stream_wait_event(b, on_a).has_error());
    ASSERT_FALSE(driver->copy_d2h_async(down, memory, 8, b).has_error());
    ASSERT_FALSE(driver->record_event(on_b, b).has_error());
    recorded = i;
    while (seen < i) std::this_thread::yield();
  }
  watcher.join();
  driver.reset();
  fake_cuda::expect_clean();
}

}  // namespace
}  // namespace troupe::device
