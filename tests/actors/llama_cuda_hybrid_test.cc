// A hybrid model (tiny-qwen35: every other layer is recurrent) through the whole runtime on CUDA; on a GPU, or on the fake runtime and
// under the SIMT emulation. Whatever the depth, the chunks, preemption and the prefix cache do, each request's stream is the one that
// it gives alone.
#include <cstdio>

#include "tests/actors/llama_cuda_workload.h"
#include "tests/golden/golden.h"

namespace troupe {
namespace {

using test::CudaRuntime;
using test::request;
using test::Streams;

constexpr const char* kHybrid = "tests/golden/tiny-qwen35";
constexpr std::uint32_t kBlock = 16;

class CudaHybrid : public test::CudaWorkload {
 protected:
  void SetUp() override {
    CudaWorkload::SetUp();
    model = kHybrid;
    requests.clear();
    for (const std::uint64_t client : {1, 2, 5, 7}) {  // 8 to 38 tokens; all but the first are sampled
      requests.push_back(request(client));
      requests.back().stop.max_tokens = 8;
    }
  }
};

class CudaHybridDepths : public CudaHybrid, public testing::WithParamInterface<std::uint32_t> {};

// Prompts in chunks of at most 11 tokens beside rows that decode.
TEST_P(CudaHybridDepths, StreamsAreThoseOfEachRequestAlone) {
  const Streams want = alone();
  RuntimeOptions options;
  options.step_tokens = 11;
  expect_same(want, test::run(GetParam(), 2, requests, test::small_load(4), options, {}, model));
}

// The same with chunks on a stream of their own: a version of the state is written on one stream and read on the other.
TEST_P(CudaHybridDepths, StreamsAreTheSameWithPrefillBeside) {
  const Streams want = alone();
  device::LoadOptions load = test::small_load(4);
  load.prefill_stream = true;
  RuntimeOptions options;
  options.step_tokens = 11;
  options.streams = 3;
  std::uint64_t prefill_steps = 0;
  test::Beside beside;
  beside.after = [&](std::size_t, CudaRuntime& on) { prefill_steps = on.runtime->metrics().scheduler.prefill_steps; };
  expect_same(want, test::run(GetParam(), 2, requests, load, options, beside, model));
  EXPECT_GT(prefill_steps, requests.size());
}

// The ids that the host gives, too, and whoever made the reference: up to where that is nearly undecided and ours differs.
TEST_P(CudaHybridDepths, IdsAreTheReferences) {
  std::vector<golden::Case> cases = golden::read_cases(std::string(kHybrid) + "/golden.json");
  cases.resize(3);  // prompts of 1, 7 and 33 tokens
  RuntimeOptions options;
  options.step_tokens = 11;
  CudaRuntime on(kHybrid, test::small_load(GetParam()), options);
  ASSERT_TRUE(on.started()) << on.error().what;
  for (std::size_t k = 0; k < cases.size(); ++k) ASSERT_TRUE(on.submit(test::greedy(k, cases[k].prompt, 12)));
  const Streams got = on.finish();
  std::size_t equal = 0;
  for (std::size_t k = 0; k < cases.size(); ++k) {
    const golden::Case& c = cases[k];
    std::size_t i = 0;
    while (i < 12 && got.at(k)[i] == c.greedy[i]) ++i;
    if (i < 12) {
      EXPECT_LT(c.margin[i], 0.15 * c.logit_std) << "prompt of " << c.prompt.size() << ", token " << i;
    }
    equal += i;
  }
  EXPECT_GE(equal, 12u);
  std::printf("depth %u: %zu of 36 ids equal the reference's\n", GetParam(), equal);
}

INSTANTIATE_TEST_SUITE_P(Depths, CudaHybridDepths, testing::Values(1, 2, 3, 4));

// Too few blocks for all: what gives way is computed again, or its blocks and its state go to a file and come back, by copies between
// the steps or on a stream beside them.
TEST_F(CudaHybrid, PreemptedRequestsComeBack) {
  requests.erase(requests.begin(), requests.begin() + 2);  // 28 and 38 tokens: five blocks, of five
  for (Request& r : requests) r.stop.max_tokens = 12;
  const Streams want = alone();
  device::LoadOptions load = test::small_load(2);
  load.kv_blocks = 5;
  for (const std::uint32_t streams : {0u, 1u, 2u, 3u}) {
    RuntimeOptions options;
    load.prefill_stream = streams == 3;
    if (streams != 0) {
      options = test::spilling("hybrid" + std::to_string(streams));
      options.streams = streams;
    }
    CudaRuntime on(kHybrid, load, options);
    ASSERT_TRUE(on.started()) << on.error().what;
    for (const Request& r : requests) ASSERT_TRUE(on.submit(r));
    expect_same(want, on.wait());
    const RuntimeMetrics m = on.runtime->metrics();
    EXPECT_GT(m.scheduler.preemptions, 0u);
    // With prefill beside, it may give way before it has settled enough to be saved (AStateComesBackBesidePrefill).
    if (streams != 3) {
      EXPECT_EQ(m.scheduler.restores > 0, streams != 0);
    }
    EXPECT_EQ(m.scheduler.spill_failures + m.scheduler.restore_failures, 0u);
    (void)on.finish();
  }
}

// Here it is behind its prompt.
TEST_F(CudaHybrid, AStateComesBackBesidePrefill) {
  requests = test::second_gives_way();
  const Streams want = alone();
  device::LoadOptions load = test::small_load(2);
  load.kv_blocks = test::kTooFewBlocks;
  load.prefill_stream = true;
  RuntimeOptions options = test::spilling("beside");
  options.streams = 3;
  CudaRuntime on(kHybrid, load, options);
  ASSERT_TRUE(on.started()) << on.error().what;
  test::submit_when_the_last_has_a_token(on, requests);
  expect_same(want, on.wait());
  const RuntimeMetrics m = on.runtime->metrics();
  EXPECT_GT(m.scheduler.restores, 0u);
  EXPECT_EQ(m.scheduler.spill_failures + m.scheduler.restore_failures, 0u);
  (void)on.finish();
}

// A second request computes only what is behind the snapshot that the first one left, and gives what it gives where nobody was before it.
TEST_F(CudaHybrid, APrefixIsFoundByItsSnapshot) {
  std::vector<Token> shared;
  for (std::uint32_t i = 0; i < 3 * kBlock + 5; ++i) shared.push_back(static_cast<Token>((i * 37 + i * i * 3) % 512));
  std::vector<Token> longer = shared;
  longer.insert(longer.end(), {7, 8, 9, 10});
  requests = {test::greedy(1, longer, 6)};
  const Streams want = alone();
  CudaRuntime on(kHybrid, test::small_load(2));
  ASSERT_TRUE(on.started()) << on.error().what;
  ASSERT_TRUE(on.submit(test::greedy(2, shared, 4)));
  (void)on.wait();
  ASSERT_TRUE(on.submit(requests[0]));
  EXPECT_EQ(on.wait().at(1), want.at(1));
  EXPECT_EQ(on.clients.record(1).finish->usage.cached_tokens, 3 * kBlock);
  const RuntimeMetrics m = on.runtime->metrics();
  EXPECT_EQ(m.scheduler.prefill_tokens, shared.size() + 9);
  EXPECT_TRUE(m.facts.has_ssm);
  EXPECT_GT(m.facts.ssm_snapshots, 0u);
  EXPECT_EQ(m.facts.ssm_used, 0u);
  (void)on.finish();
}

}  // namespace
}  // namespace troupe
