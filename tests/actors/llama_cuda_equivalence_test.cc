// Running ahead on CUDA changes no token (R1): one workload at depths 1 to 4, with preemption, with and without files, and with prefill
// on a stream of its own. On a GPU, or
// on the fake runtime and under the SIMT emulation.
#include <filesystem>

#include "tests/actors/llama_cuda_workload.h"

namespace troupe {
namespace {

using test::request;
using test::run;
using test::Streams;

class CudaEquivalence : public test::CudaWorkload, public testing::WithParamInterface<std::uint32_t> {};

TEST_P(CudaEquivalence, StreamsAreThoseOfEachRequestAlone) {
  mask(alone());
  const Streams want = alone();
  EXPECT_EQ(want.at(1).size(), 14u);
  expect_same(want, run(GetParam(), 3, requests, test::small_load(4)));
}

TEST_P(CudaEquivalence, StreamsAreTheSameWithPrefillBeside) {
  mask(alone());
  const Streams want = alone();
  device::LoadOptions load = test::small_load(4);
  load.prefill_stream = true;
  load.step_tokens = 16;  // chunks
  RuntimeOptions options;
  options.streams = 3;
  options.step_tokens = 16;
  std::uint64_t prefill_steps = 0;
  const auto count = [&](std::size_t, test::CudaRuntime& on) { prefill_steps = on.runtime->metrics().scheduler.prefill_steps; };
  expect_same(want, run(GetParam(), 3, requests, load, options, {.after = count}));
  EXPECT_GT(prefill_steps, requests.size());
}

// Too few blocks for all: the newest gives way, and is computed again, or its blocks go to a file and come back, by copies
// between the steps or on a stream beside them.
TEST_P(CudaEquivalence, PreemptedRequestsComeBack) {
  const Streams want = alone();
  device::LoadOptions load = test::small_load(4);
  load.kv_blocks = 10;
  expect_same(want, run(GetParam(), 0, requests, load));
  RuntimeOptions options = test::spilling("spill" + std::to_string(GetParam()));
  load.prefill_stream = true;
  for (options.streams = 1; options.streams <= 3; ++options.streams) expect_same(want, run(GetParam(), 0, requests, load, options));
  EXPECT_TRUE(std::filesystem::is_empty(options.spill_dir));
}

INSTANTIATE_TEST_SUITE_P(Depths, CudaEquivalence, testing::Values(1, 2, 3, 4));

using CudaMasks = test::CudaWorkload;

// Negative control: rows that were launched with an older mask are kept on purpose.
TEST_F(CudaMasks, AMaskThatComesTooLateShows) {
  requests = {request(3)};
  mask(alone());
  const Streams want = alone();
  expect_same(want, run(3, 0, requests, test::small_load(4)));
  RuntimeOptions wrong;
  wrong.fault = actors::SchedulerFault::ignore_mask_change;
  EXPECT_NE(run(3, 0, requests, test::small_load(4), wrong), want);
}

}  // namespace
}  // namespace troupe
