// What goes wrong on CUDA, on the fake runtime. Steps that fail half-way are done again, and no token changes. And R5, R7: whichever
// CUDA call fails, once or for good, every request ends once and nothing leaks.
#include <chrono>
#include <thread>

#include "tests/actors/llama_cuda_faults.h"

namespace troupe {
namespace {

using fake_cuda::Call;
using test::CudaRuntime;
using test::kModel;
using test::request;
using test::run;
using test::spilling;
using test::Streams;

class CudaRedo : public test::CudaWorkload, public testing::WithParamInterface<std::uint32_t> {};

// Some launches, copies, captures and records fail now and then, some half-way in a step.
TEST_P(CudaRedo, StepsThatFailAreDoneAgain) {
  const Streams want = alone();
  std::vector<fake_cuda::Fault> faults;  // one whenever a request comes
  for (const Call call : {Call::kernel_launch, Call::cudaMemcpyAsync, Call::cudaGraphLaunch, Call::cudaEventRecord, Call::kernel_launch,
                          Call::cudaStreamEndCapture, Call::cudaMemcpyAsync}) {
    faults.push_back({.call = call, .nth = 1 + faults.size() % 3, .error = cudaErrorInvalidValue});
  }
  std::uint64_t before = 0;
  test::Beside beside;
  beside.before = [&](std::size_t i) {
    before = fake_cuda::calls(faults[i].call);
    fake_cuda::inject(faults[i]);
  };
  beside.after = [&](std::size_t i, CudaRuntime& on) {
    // Met, and what it hit done again, before the next comes: a step that fails twice ends its requests.
    const std::uint64_t client = requests[i].client;
    while (!on.clients.record(client).finish && fake_cuda::calls(faults[i].call) < before + faults[i].nth)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    on.clients.wait_tokens(client, on.clients.record(client).tokens.size() + 3);
  };
  ASSERT_EQ(faults.size(), requests.size());
  expect_same(want, run(GetParam(), 3, requests, test::small_load(4), {}, beside));
}

INSTANTIATE_TEST_SUITE_P(Depths, CudaRedo, testing::Values(1, 2, 3, 4));

class CudaCopies : public test::CudaWorkload {
 protected:
  void spill(RuntimeOptions options) {
    device::LoadOptions load = test::small_load(4);
    load.kv_blocks = 10;
    (void)run(2, 0, requests, load, options);
  }
};

TEST_F(CudaCopies, WaitForTheComputeStreamWhereTheyHaveTheirOwn) {
  RuntimeOptions options = spilling("copies");
  options.streams = 1;
  spill(options);
  EXPECT_EQ(fake_cuda::calls(Call::cudaStreamWaitEvent), 0u);
  options.streams = 2;
  spill(options);
  EXPECT_GT(fake_cuda::calls(Call::cudaStreamWaitEvent), 0u);
}

// Negative control: the copy is sent before the compute stream's actor has said that the event is recorded.
TEST_F(CudaCopies, AWaitForAnEventThatIsNotRecordedShows) {
  RuntimeOptions wrong = spilling("unrecorded");
  wrong.router_fault = actors::RouterFault::wait_unrecorded;
  spill(wrong);
  std::size_t caught = 0;
  for (const std::string& report : fake_cuda::take_reports())
    caught += report.find("the stream waits for nothing") != std::string::npos ? 1 : 0;
  EXPECT_GT(caught, 0u);
}

class CudaPrefillStream : public test::CudaWorkload {
 protected:
  static device::LoadOptions load() {
    device::LoadOptions load = test::small_load(2);
    load.prefill_stream = true;
    return load;
  }
  static RuntimeOptions options(std::uint32_t streams) {
    RuntimeOptions out;
    out.streams = streams;
    return out;
  }
};

TEST_F(CudaPrefillStream, TheComputeStreamHasTheHigherPriorityAndNothingWaits) {
  const Streams want = alone();
  expect_same(want, run(2, 3, requests, load(), options(2)));
  EXPECT_EQ(fake_cuda::calls(Call::cudaStreamCreateWithPriority), 0u);
  expect_same(want, run(2, 3, requests, load(), options(3)));
  EXPECT_EQ(fake_cuda::calls(Call::cudaStreamCreateWithPriority), 1u);
  EXPECT_EQ(fake_cuda::calls(Call::cudaStreamWaitEvent), 0u);
}

// The first step's event cannot be recorded, nor can it behind what is on the stream. Alone the stream keeps its order, and the step is
// done again; beside another, what is left of it might write the blocks of others at any time.
TEST_F(CudaPrefillStream, AStepOfWhichNothingSaysWhenItIsOverEndsTheDevice) {
  requests = {request(1)};
  const Streams want = alone();
  for (const std::uint32_t streams : {2u, 3u}) {
    CudaRuntime on(kModel, load(), options(streams));
    ASSERT_TRUE(on.started()) << on.error().what;
    for (const std::uint64_t nth : {1u, 2u}) fake_cuda::inject({.call = Call::cudaEventRecord, .nth = nth, .error = cudaErrorInvalidValue});
    ASSERT_TRUE(on.submit(requests[0]));
    on.clients.wait_ended(1);
    const test::Record record = on.clients.record(1);
    EXPECT_EQ(record.wrong, "");
    if (streams == 2) {
      EXPECT_EQ(record.tokens, want.at(1));
    } else {
      EXPECT_TRUE(record.tokens.empty());
      EXPECT_EQ(record.finish->error.code, ErrorCode::device_lost);
      EXPECT_NE(record.finish->error.what.find("nothing says when"), std::string::npos) << record.finish->error.what;
    }
    EXPECT_TRUE(on.runtime->stop());
  }
}

// While it serves, nobody makes or destroys a stream, an event or memory, and nobody waits in CUDA: what steps and copies need is there
// from the start.
TEST(CudaServing, CreatesNothingAndWaitsForNothing) {
  constexpr Call kNever[] = {
      Call::cudaStreamCreateWithFlags, Call::cudaStreamDestroy,    Call::cudaStreamSynchronize, Call::cudaEventCreateWithFlags,
      Call::cudaEventDestroy,          Call::cudaEventSynchronize, Call::cudaHostAlloc,         Call::cudaFreeHost,
      Call::cudaMallocAsync,           Call::cudaFreeAsync};
  fake_cuda::reset();
  RuntimeOptions options = spilling("serving");
  options.streams = 3;
  device::LoadOptions load = test::small_load(2);
  load.kv_blocks = test::kTooFewBlocks;
  load.prefill_stream = true;
  CudaRuntime on(kModel, load, options);
  ASSERT_TRUE(on.started()) << on.error().what;
  std::vector<std::uint64_t> before;
  for (const Call call : kNever) before.push_back(fake_cuda::calls(call));
  test::submit_when_the_last_has_a_token(on, test::second_gives_way());
  (void)on.wait();
  EXPECT_GT(on.runtime->metrics().scheduler.preemptions, 0u);
  for (std::size_t i = 0; i < std::size(kNever); ++i) EXPECT_EQ(fake_cuda::calls(kNever[i]), before[i]) << fake_cuda::name(kNever[i]);
  (void)on.finish();
  EXPECT_GT(fake_cuda::calls(Call::cudaEventDestroy), 0u);
  fake_cuda::expect_clean();
}

// One failed page-locked allocation, and nothing that follows is blamed for it (ninfer PR 45).
TEST(CudaScenario, PinnedPoison) {
  const std::vector<Request> requests = {request(1), request(3)};
  fake_cuda::reset();
  const Streams want = run(2, 0, requests, test::small_load(2));
  for (std::uint64_t nth = 1; nth < 18; ++nth) {
    fake_cuda::inject({.call = Call::cudaHostAlloc, .nth = nth, .error = cudaErrorMemoryAllocation});
    {
      CudaRuntime refused(kModel, test::small_load(2));
      if (refused.started()) {
        EXPECT_GT(nth, 11u) << "two areas of the loader, then four for each of three slots";
        EXPECT_TRUE(refused.runtime->stop());
        break;
      }
      EXPECT_EQ(refused.error().code, ErrorCode::device_failed);
      EXPECT_NE(refused.error().what.find("the machine has no"), std::string::npos) << refused.error().what;
    }
    // Nothing was left behind in CUDA's last error: the same thread's next runtime works at once.
    EXPECT_EQ(run(2, 0, requests, test::small_load(2)), want);
  }
  // Somebody else's error on this thread is not ours either.
  void* p = nullptr;
  fake_cuda::inject({.call = Call::cudaHostAlloc, .nth = 1, .error = cudaErrorMemoryAllocation});
  EXPECT_EQ(cudaHostAlloc(&p, 64, cudaHostAllocPortable), cudaErrorMemoryAllocation);
  EXPECT_EQ(run(2, 0, requests, test::small_load(2)), want);
  fake_cuda::expect_clean();
}

using LlamaCudaFault = test::CudaFault;
TEST_P(LlamaCudaFault, EndsEverythingOnce) { all_lives({1, 2, 7}); }

using SpillCudaFault = test::SpillCudaFault;
TEST_P(SpillCudaFault, EndsEverythingOnce) { all_lives({1, 3}); }

class PrefillCudaFault : public test::CudaFault {
 protected:
  PrefillCudaFault() { prefill_stream = true; }
};
TEST_P(PrefillCudaFault, EndsEverythingOnce) { all_lives({1, 3}); }

INSTANTIATE_TEST_SUITE_P(Table, SpillCudaFault, testing::Combine(testing::ValuesIn(test::kCopyCalls), testing::Bool()), test::cell_name);
INSTANTIATE_TEST_SUITE_P(Table, LlamaCudaFault, testing::Combine(testing::ValuesIn(test::kAllCalls), testing::Bool()), test::cell_name);
INSTANTIATE_TEST_SUITE_P(Table, PrefillCudaFault, testing::Combine(testing::ValuesIn(test::kPrefillCalls), testing::Bool()),
                         test::cell_name);

}  // namespace
}  // namespace troupe
