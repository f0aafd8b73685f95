// Kernels on streams of the fake runtime: in their order, into graphs, with its faults; what is wrong in them is found.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/cuda/launch.h"
#include "tests/fake_cuda/fixture.h"

namespace troupe::kernels {
namespace {

using fake_cuda::Call;

// Each thread of a block adds `by` to the sum of its neighbours' values.
__global__ void add_kernel(float* v, float by) {
  using Values = float[64];
  TROUPE_SHARED(Values, before);
  before[threadIdx.x] = v[threadIdx.x];
  __syncthreads();
  v[threadIdx.x] = before[(threadIdx.x + 1) % 64] + by;
}
__global__ void broken_kernel() {
  if (threadIdx.x == 3) __syncthreads();
}

class SimtStreams : public fake_cuda::Fixture {
 protected:
  void SetUp() override {
    Fixture::SetUp();
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    void* p = nullptr;
    ASSERT_EQ(cudaMallocAsync(&p, 64 * sizeof(float), stream), cudaSuccess);
    values = static_cast<float*>(p);
    ASSERT_EQ(cudaMemsetAsync(values, 0, 64 * sizeof(float), stream), cudaSuccess);
    ASSERT_EQ(cudaHostAlloc(&p, 64 * sizeof(float), cudaHostAllocPortable), cudaSuccess);
    host = static_cast<float*>(p);
  }
  void TearDown() override {
    EXPECT_EQ(cudaFreeHost(host), cudaSuccess);
    EXPECT_EQ(cudaFreeAsync(values, stream), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    Fixture::TearDown();
  }
  float first() {
    EXPECT_EQ(cudaMemcpyAsync(host, values, 64 * sizeof(float), cudaMemcpyDeviceToHost, stream), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    for (int i = 1; i < 64; ++i) EXPECT_EQ(host[i], host[0]);
    return host[0];
  }

  cudaStream_t stream = nullptr;
  float *values = nullptr, *host = nullptr;
};

TEST_F(SimtStreams, KernelsRunInTheOrderOfTheStream) {
  for (int i = 1; i <= 10; ++i) launch(&add_kernel, {1}, 64, stream, values, static_cast<float>(i));
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(first(), 55.0f);
}

TEST_F(SimtStreams, AGraphReplaysThem) {
  launch(&add_kernel, {1}, 64, stream, values, 0.0f);  // loads it
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  launch(&add_kernel, {1}, 64, stream, values, 3.0f);
  launch(&add_kernel, {1}, 64, stream, values, 4.0f);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  cudaGraphExec_t exec = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  EXPECT_EQ(first(), 0.0f);
  for (int i = 0; i < 5; ++i) ASSERT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
  EXPECT_EQ(first(), 35.0f);
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(SimtStreams, AKernelThatWasNeverLaunchedIsNotForACapture) {
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  launch(&add_kernel, {1}, 64, stream, values, 3.0f);
  fake_cuda::claim_reports("first launch is into a capture");
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(SimtStreams, AFailedLaunchIsTheLastError) {
  fake_cuda::inject({.call = Call::kernel_launch, .nth = 2, .error = cudaErrorInvalidValue});
  for (int i = 0; i < 3; ++i) launch(&add_kernel, {1}, 64, stream, values, 1.0f);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(first(), 2.0f);
}

__global__ void copy_kernel(const float* from, float* to) { to[threadIdx.x] = from[threadIdx.x]; }

// A kernel that goes into page-locked memory by itself uses it as a copy would.
TEST_F(SimtStreams, AKernelsOwnTouchOfPageLockedMemoryIsInOrder) {
  for (int i = 0; i < 64; ++i) host[i] = 7.0f;
  launch(&copy_kernel, {1}, 64, stream, static_cast<const float*>(host), values);
  launch(&add_kernel, {1}, 64, stream, values, 1.0f);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  host[3] = 1.0f;  // may be used again
  launch(&copy_kernel, {1}, 64, stream, static_cast<const float*>(values), host);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(host[i], 8.0f);
}

TEST_F(SimtStreams, WhatAKernelWritesIsNotReadTooEarly) {
  launch(&copy_kernel, {1}, 64, stream, static_cast<const float*>(values), host);
  const volatile float early = host[63];
  (void)early;
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  fake_cuda::claim_reports("a ring slot was read too early");
  EXPECT_EQ(host[63], 0.0f);
}

TEST_F(SimtStreams, WhatAKernelReadsIsNotWrittenTooEarly) {
  launch(&copy_kernel, {1}, 64, stream, static_cast<const float*>(host), values);
  const volatile float read = host[0];  // reading it is no harm
  (void)read;
  EXPECT_TRUE(fake_cuda::take_reports().empty());
  host[63] = 2.0f;
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  fake_cuda::claim_reports("an upload slot was reused too early");
}

struct CopyArgs {
  const float* from;
  std::uint32_t n, unused;
  float* to;
};
__global__ void copy_by_struct_kernel(const CopyArgs a) {
  if (threadIdx.x < a.n) a.to[threadIdx.x] = a.from[threadIdx.x];
}

TEST_F(SimtStreams, MemoryThatTheDeviceDoesNotReach) {
  const std::vector<float> heap(64, 3.0f);
  launch(&copy_kernel, {1}, 64, stream, heap.data(), values);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  fake_cuda::claim_reports("not page-locked, where it would fault");
#if !defined(__SANITIZE_ADDRESS__)  // there only what is an address by its type is looked at
  launch(&copy_by_struct_kernel, {1}, 64, stream, CopyArgs{heap.data(), 64, 32000, values});
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  fake_cuda::claim_reports("not page-locked, where it would fault");
#endif
  launch(&copy_by_struct_kernel, {1}, 64, stream, CopyArgs{values + 32, 32, 32000, values});
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_TRUE(fake_cuda::take_reports().empty());
}

TEST(SimtStreamsControl, AFaultOfAKernelIsReportedAndLosesTheDevice) {
  fake_cuda::reset();
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  launch(&broken_kernel, {1}, 64, stream);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorLaunchFailure);
  fake_cuda::claim_reports("never reach");
  fake_cuda::reset();
}

}  // namespace
}  // namespace troupe::kernels
