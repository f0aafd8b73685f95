// The fake runtime's own behaviour, and for each trap one program that falls into it: caught, with a sentence. The same
// steps in the right order are not reported.
#include "tests/fake_cuda/fake_cuda.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <semaphore>
#include <thread>

#include "tests/fake_cuda/fixture.h"

namespace fake_cuda {
namespace {

// Holds a stream until it is opened.
class Gate {
 public:
  explicit Gate(cudaStream_t stream) {
    launch(stream, [held = open_] {
      held->acquire();
      return cudaSuccess;
    });
  }
  void open() { open_->release(); }

 private:
  std::shared_ptr<std::binary_semaphore> open_ = std::make_shared<std::binary_semaphore>(0);
};

class FakeCuda : public Fixture {
 protected:
  void SetUp() override {
    reset({.devices = 2});
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
    ASSERT_EQ(cudaHostAlloc(&host, 64, cudaHostAllocPortable), cudaSuccess);
    ASSERT_EQ(cudaMallocAsync(&device, 64, stream), cudaSuccess);
    std::memset(host, 7, 64);
  }
  void TearDown() override {
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    if (device != nullptr) {
      EXPECT_EQ(cudaFreeAsync(device, stream), cudaSuccess);
    }
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    if (host != nullptr) {
      EXPECT_EQ(cudaFreeHost(host), cudaSuccess);
    }
    if (event != nullptr) {
      EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
    }
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    Fixture::TearDown();
  }
  void finish() { ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess); }
  void upload() { ASSERT_EQ(cudaMemcpyAsync(device, host, 64, cudaMemcpyHostToDevice, stream), cudaSuccess); }
  void download() { ASSERT_EQ(cudaMemcpyAsync(host, device, 64, cudaMemcpyDeviceToHost, stream), cudaSuccess); }
  volatile char* bytes() { return static_cast<char*>(host); }

  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  void* host = nullptr;
  void* device = nullptr;
};

TEST_F(FakeCuda, CopiesAreAsynchronousAndInOrder) {
  Gate gate(stream);
  upload();
  ASSERT_EQ(cudaMemsetAsync(device, 9, 32, stream), cudaSuccess);
  download();
  ASSERT_EQ(cudaEventRecord(event, stream), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady) << "as CUDA does";
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  gate.open();
  ASSERT_EQ(cudaEventSynchronize(event), cudaSuccess);
  EXPECT_EQ(bytes()[0], 9);
  EXPECT_EQ(bytes()[63], 7);
}

TEST_F(FakeCuda, AWaitOrdersStreams) {
  cudaStream_t other = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  std::atomic<int> seen{0};
  Gate gate(stream);
  launch(stream, [&] { return seen = 1, cudaSuccess; });
  download();
  ASSERT_EQ(cudaEventRecord(event, stream), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(other, event, 0), cudaSuccess);
  launch(other, [&] { return seen == 1 ? cudaSuccess : cudaErrorLaunchFailure; });
  EXPECT_EQ(cudaStreamQuery(other), cudaErrorNotReady);
  gate.open();
  ASSERT_EQ(cudaStreamSynchronize(other), cudaSuccess);
  EXPECT_NE(bytes()[0], 7) << "the other stream's end implies the copy's";
  EXPECT_EQ(cudaStreamDestroy(other), cudaSuccess);
}

TEST_F(FakeCuda, TrapUnrecordedEvent) {
  ASSERT_EQ(cudaStreamWaitEvent(stream, event, 0), cudaSuccess);
  finish();
  claim_reports("waits for nothing");
}

TEST_F(FakeCuda, TrapEventNotRecordedAgain) {
  cudaStream_t other = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  for (int round = 0; round < 2; ++round) {
    ASSERT_EQ(cudaEventRecord(event, stream), cudaSuccess);
    ASSERT_EQ(cudaStreamWaitEvent(other, event, 0), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(other), cudaSuccess);
  }
  EXPECT_TRUE(take_reports().empty());
  ASSERT_EQ(cudaStreamWaitEvent(other, event, 0), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(other), cudaSuccess);
  claim_reports("waited for this record before");
  EXPECT_EQ(cudaStreamDestroy(other), cudaSuccess);
}

TEST_F(FakeCuda, TrapGlobalCapture) {
  for (const auto mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal}) {
    const bool broken = mode == cudaStreamCaptureModeGlobal;
    ASSERT_EQ(cudaStreamBeginCapture(stream, mode), cudaSuccess);
    upload();
    std::thread([&] {
      ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
      EXPECT_EQ(cudaEventQuery(event), broken ? cudaErrorStreamCaptureUnsupported : cudaSuccess);
    }).join();
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph), broken ? cudaErrorStreamCaptureInvalidated : cudaSuccess);
    if (broken) {
      claim_reports("global mode");
    } else {
      EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    }
  }
}

TEST_F(FakeCuda, TrapOwnCallDuringACapture) {
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorStreamCaptureUnsupported);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
  claim_reports("called by the thread that captures");
}

TEST_F(FakeCuda, TrapWrongDevice) {
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(event, stream), cudaErrorInvalidResourceHandle);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  claim_reports("the stream is of device 0, and the thread's device is 1");
  std::thread([&] { EXPECT_EQ(cudaEventQuery(event), cudaSuccess); }).join();
  claim_reports("never called cudaSetDevice");
}

TEST_F(FakeCuda, TrapUploadSlotReused) {
  Gate gate(stream);
  upload();
  EXPECT_EQ(bytes()[0], 7) << "reading is fine";
  EXPECT_TRUE(take_reports().empty());
  bytes()[1] = 1;
  gate.open();
  claim_reports("an upload slot was reused too early");
  finish();
  bytes()[2] = 2;
}

// The copy is done, and the host cannot know it yet.
TEST_F(FakeCuda, TrapRingSlotReadBeforeItsEvent) {
  download();
  ASSERT_EQ(cudaEventRecord(event, stream), cudaSuccess);
  (void)bytes()[5];
  claim_reports("read byte 5 of 64 page-locked bytes before an event or its stream said that what writes it is complete");
  download();
  finish();
  (void)bytes()[5];
}

TEST_F(FakeCuda, TrapEventInFlight) {
  Gate gate(stream);
  ASSERT_EQ(cudaEventRecord(event, stream), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event, stream), cudaSuccess);
  claim_reports("the event is in flight");
  ASSERT_EQ(cudaEventDestroy(event), cudaSuccess);
  claim_reports("cudaEventDestroy: the event is in flight");
  EXPECT_EQ(cudaEventQuery(event), cudaErrorInvalidResourceHandle);
  claim_reports("one that was destroyed");
  event = nullptr;
  gate.open();
}

TEST_F(FakeCuda, TrapFreedPageLockedMemory) {
  auto* freed = static_cast<volatile char*>(host);
  ASSERT_EQ(cudaFreeHost(host), cudaSuccess);
  freed[3] = 1;
  claim_reports("the host wrote byte 3 of 64 page-locked bytes after cudaFreeHost");
  EXPECT_EQ(cudaMemcpyAsync(device, host, 64, cudaMemcpyHostToDevice, stream), cudaErrorInvalidValue);
  claim_reports("given back by cudaFreeHost");
  host = nullptr;
}

TEST_F(FakeCuda, TrapMemoryFreedUnderACopy) {
  Gate gate(stream);
  download();
  ASSERT_EQ(cudaFreeHost(host), cudaSuccess);
  host = nullptr;
  gate.open();
  claim_reports("a copy that uses the memory is in flight");
}

TEST_F(FakeCuda, TrapPageableMemory) {
  char here[64] = {};
  ASSERT_EQ(cudaMemsetAsync(device, 3, 64, stream), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(here, device, 64, cudaMemcpyDeviceToHost, stream), cudaSuccess);
  EXPECT_EQ(here[0], 3) << "it waited";
  claim_reports("not page-locked");
  EXPECT_EQ(cudaMemcpyAsync(static_cast<char*>(device) + 1, host, 64, cudaMemcpyHostToDevice, stream), cudaErrorInvalidValue);
  claim_reports("no allocation holds");
}

TEST_F(FakeCuda, TrapGraphEvictedInFlight) {
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  upload();
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  cudaGraphExec_t exec = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  Gate gate(stream);
  ASSERT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
  bytes()[0] = 1;  // the upload slot that the graph reads
  claim_reports("an upload slot was reused too early");
  ASSERT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  claim_reports("a graph is pinned until its step has settled");
  gate.open();
}

TEST_F(FakeCuda, TrapMoreHostFunctionsThanCudaQueues) {
  Gate gate(stream);
  const auto nothing = [](void*) {};
  for (std::size_t i = 0; i < kMostHostFunctions; ++i) ASSERT_EQ(cudaLaunchHostFunc(stream, nothing, nullptr), cudaSuccess);
  EXPECT_TRUE(take_reports().empty());
  ASSERT_EQ(cudaLaunchHostFunc(stream, nothing, nullptr), cudaSuccess);
  claim_reports("CUDA's queue may be full");
  gate.open();
  finish();
}

TEST_F(FakeCuda, TrapCallFromAHostFunction) {
  ASSERT_EQ(cudaLaunchHostFunc(
                stream, [](void* e) { (void)cudaEventQuery(static_cast<cudaEvent_t>(e)); }, event),
            cudaSuccess);
  finish();
  claim_reports("called from a host function");
}

TEST_F(FakeCuda, ACopyOnTheDevice) {
  void* other = nullptr;
  ASSERT_EQ(cudaMallocAsync(&other, 64, stream), cudaSuccess);
  upload();
  ASSERT_EQ(cudaMemcpyAsync(other, device, 64, cudaMemcpyDeviceToDevice, stream), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(device, 1, 64, stream), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(device, other, 32, cudaMemcpyDeviceToDevice, stream), cudaSuccess);
  download();
  finish();
  EXPECT_EQ(bytes()[31], 7);
  EXPECT_EQ(bytes()[32], 1);
  EXPECT_EQ(cudaMemcpyAsync(other, device, 65, cudaMemcpyDeviceToDevice, stream), cudaErrorInvalidValue);
  claim_reports("no allocation holds");
  EXPECT_EQ(cudaFreeAsync(other, stream), cudaSuccess);
}

// For benchmarks alone.
TEST_F(FakeCuda, AnEventThatTakesTheTime) {
  float ms = -1.0f;
  EXPECT_EQ(cudaEventElapsedTime(&ms, event, event), cudaErrorInvalidResourceHandle) << "it takes none";
  cudaEvent_t timed[2] = {};
  for (cudaEvent_t& e : timed) ASSERT_EQ(cudaEventCreateWithFlags(&e, cudaEventDefault), cudaSuccess);
  claim_reports("makes every record slow");
  ASSERT_EQ(cudaEventRecord(timed[0], stream), cudaSuccess);
  Gate gate(stream);
  ASSERT_EQ(cudaEventRecord(timed[1], stream), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&ms, timed[0], timed[1]), cudaErrorNotReady);
  gate.open();
  finish();
  EXPECT_EQ(cudaEventElapsedTime(&ms, timed[0], timed[1]), cudaSuccess);
  EXPECT_GE(ms, 0.0f);
  for (const cudaEvent_t e : timed) EXPECT_EQ(cudaEventDestroy(e), cudaSuccess);
}

TEST_F(FakeCuda, AStreamDestroyedWithWork) {
  cudaStream_t other = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  Gate gate(other);
  ASSERT_EQ(cudaStreamDestroy(other), cudaSuccess);
  claim_reports("work is queued");
  EXPECT_EQ(cudaStreamQuery(other), cudaErrorInvalidResourceHandle);
  claim_reports("destroyed");
  gate.open();
}

TEST_F(FakeCuda, AnInjectedErrorComesOnceOrStays) {
  inject({.call = Call::cudaEventQuery, .nth = 2, .error = cudaErrorInvalidValue});
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorInvalidValue);
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
  EXPECT_EQ(calls(Call::cudaEventQuery), 3u);
}

class FakeCudaLost : public Fixture {};

TEST_F(FakeCudaLost, AKernelsErrorIsSticky) {
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  std::atomic<bool> ran{false};
  Gate gate(stream);
  launch(stream, [] { return cudaErrorIllegalAddress; });
  launch(stream, [&] { return ran = true, cudaSuccess; });
  gate.open();
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaErrorIllegalAddress);
  void* p = nullptr;
  EXPECT_EQ(cudaHostAlloc(&p, 1, 0), cudaErrorIllegalAddress);
  claim_leaks();
  EXPECT_FALSE(ran);
}

TEST_F(FakeCudaLost, LeaksAreNamed) {
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  void* host = nullptr;
  ASSERT_EQ(cudaHostAlloc(&host, 10, 0), cudaSuccess);
  EXPECT_TRUE(any_says(leaks(), "1 events were never given back by cudaEventDestroy"));
  EXPECT_TRUE(any_says(leaks(), "10 page-locked bytes were never given back"));
  reset();
  EXPECT_TRUE(leaks().empty());
}

TEST(FakeCudaExit, ALeakAtTheEndFailsTheProcess) {
  EXPECT_EXIT(
      {
        reset();
        (void)cudaSetDevice(0);
        cudaEvent_t event = nullptr;
        (void)cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
        std::exit(0);
      },
      testing::ExitedWithCode(97), "1 events were never given back by cudaEventDestroy");
}

TEST(FakeCudaExit, AMachineWithoutADriver) {
  reset({.driver_installed = false});
  int n = -1;
  EXPECT_EQ(cudaDriverGetVersion(&n), cudaSuccess);
  EXPECT_EQ(n, 0);
  EXPECT_EQ(cudaGetDeviceCount(&n), cudaErrorInsufficientDriver);
  reset({.driver_version = 12090});
  EXPECT_EQ(cudaDriverGetVersion(&n), cudaSuccess);
  EXPECT_EQ(n, 12090);
  EXPECT_EQ(cudaGetDeviceCount(&n), cudaErrorInsufficientDriver);
  reset({.driver_version = 13020});
  EXPECT_EQ(cudaGetDeviceCount(&n), cudaSuccess) << "any of the same major version";
  reset({.devices = 0});
  EXPECT_EQ(cudaGetDeviceCount(&n), cudaErrorNoDevice);
  reset();
}

}  // namespace
}  // namespace fake_cuda
