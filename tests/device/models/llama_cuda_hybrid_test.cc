// The CUDA model on a hybrid model (tiny-qwen35: every other layer is recurrent), without a GPU: versions of the recurrent state under
// graphs, chunks, steps that are done again, and launches that fail.
#include <gtest/gtest.h>

#include "device/models/llama_cuda.h"
#include "tests/device/models/llama_cuda_rig.h"

namespace troupe::device {
namespace {

const std::string kPath = "tests/golden/tiny-qwen35";

LlamaOptions small(std::uint32_t max_graphs = 8) {
  LlamaOptions o;
  o.kv_blocks = 16;
  o.max_rows = 8;
  o.max_step_tokens = 64;
  o.n_slots = 8;
  o.context_limit = 100;
  o.max_graphs = max_graphs;
  return o;
}

std::vector<Token> tokens_of(Token seed, std::size_t n) {
  std::vector<Token> out;
  for (std::size_t i = 0; i < n; ++i) out.push_back(static_cast<Token>((seed * 131 + i * i * 17 + i * 37) % 512));
  return out;
}

class LlamaCudaHybrid : public fake_cuda::Fixture {};

TEST_F(LlamaCudaHybrid, InfoAndMemorySayHowManyVersionsThereAre) {
  LlamaOptions o = small();
  std::size_t bytes = 0;
  {
    CudaRig rig(kPath, o);
    EXPECT_TRUE(rig.info().has_ssm_layers);
    EXPECT_EQ(rig.info().ssm_states, 8u * 3u) << "depth + 1 a slot";
    bytes = rig.driver().usage().device_bytes;
  }
  o.ssm_states = 34;
  {
    CudaRig rig(kPath, o);
    EXPECT_EQ(rig.info().ssm_states, 34u);
    // Two recurrent layers of 3 inputs of 160 channels, and 4 heads of 16 x 32 (24 columns in two strips).
    EXPECT_EQ(rig.driver().usage().device_bytes, bytes + std::size_t{10} * 2 * (3 * 160 + 4 * 16 * 32) * sizeof(float));
  }
  auto driver = cuda_driver();
  const auto [source, config] = open_model(kPath);
  o.ssm_states = 2;
  const auto few = LlamaCudaModel::create(source, config, o, *driver);
  ASSERT_FALSE(few);
  EXPECT_EQ(few.error().code, ErrorCode::bad_request);
  ModelConfig wide = config;
  wide.delta.k_dim = 257;
  const auto refused = LlamaCudaModel::create(source, wide, small(), *driver);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
  EXPECT_EQ(driver->usage().device_bytes, 0u);
}

// R1: graphs and the rows that fill them up change no bit; nor do another batch, other chunks, another slot. The state's version is
// another in each step, and a graph that was captured with one reads another.
TEST_F(LlamaCudaHybrid, AReplayedStepHasTheBitsOfOneThatIsLaunched) {
  CudaRig plain(kPath, small(0)), graphs(kPath, small(), 7);
  const std::vector<std::vector<Token>> ids = {tokens_of(1, 3), tokens_of(2, 1), tokens_of(3, 20), tokens_of(4, 2), tokens_of(5, 1)};
  expect_replays_have_the_bits_of_launches(plain, graphs, ids, {2, 13});
  // The sequences that left the batch were not touched since: version 0 of a slot too, which a row that names none might hit.
  for (std::uint32_t s = 1; s < ids.size(); ++s) {
    const std::uint32_t at = static_cast<std::uint32_t>(ids[s].size() + 2 * (ids.size() - s));
    const auto on = graphs.run({{.slot = s, .position = at, .ids = {7}}});
    CudaRig afresh(kPath, small(0));
    RigResult alone = afresh.run({{.slot = 0, .position = 0, .ids = ids[s]}});
    for (std::uint32_t p = static_cast<std::uint32_t>(ids[s].size()); p < at; ++p)
      alone = afresh.run({{.slot = 0, .position = p, .ids = {alone.rows[0].id}}});
    alone = afresh.run({{.slot = 0, .position = at, .ids = {7}}});
    EXPECT_TRUE(same_bits(on.logits[0], alone.logits[0])) << s;
  }
}

// R2: steps that were disowned leave nothing behind: the state is read from the version that was settled.
TEST_F(LlamaCudaHybrid, RowsThatAreDoneAgainGiveTheirBits) {
  const auto ids = tokens_of(6, 30), wrong = tokens_of(7, 32);
  std::vector<std::vector<float>> want;
  CudaRig plain(kPath, small(0)), rig(kPath, small(), 3);
  (void)plain.run({{.slot = 1, .position = 0, .ids = piece(ids, 0, 20)}});
  for (std::uint32_t p = 20; p < 30; ++p) want.push_back(plain.run({{.slot = 1, .position = p, .ids = {ids[p]}}}).logits[0]);
  (void)rig.run({{.slot = 0, .position = 0, .ids = piece(ids, 0, 20)}});
  std::uint32_t settled = 1;  // version
  for (std::uint32_t p = 20; p < 30; ++p, ++settled) {
    if (p % 3 == 0) {
      (void)rig.run({{.slot = 0, .position = p, .ids = {wrong[p]}, .state_in = settled}});
      (void)rig.run({{.slot = 0, .position = p + 1, .ids = {wrong[p + 1]}}});
    }
    const auto r = rig.run({{.slot = 0, .position = p, .ids = {ids[p]}, .state_in = settled}});
    ASSERT_TRUE(same_bits(r.logits[0], want[p - 20])) << "position " << p;
  }
}

// Whatever launch of a step fails, in the step's own graph or beside it: the same step from the version that was settled gives its bits,
// and a sequence that was not in the step goes on as if nothing had been.
TEST_F(LlamaCudaHybrid, AStepThatFailsAtAnyLaunchLeavesNoWrongState) {
  const auto ids = tokens_of(8, 7), other = tokens_of(9, 6);
  for (const std::uint32_t max_graphs : {0u, 8u}) {
    fake_cuda::reset();  // the fault that was not met
    CudaRig rig(kPath, small(max_graphs));
    const auto begin = [&](std::uint32_t slot, const std::vector<Token>& tokens) {
      rig.release(slot);
      (void)rig.run({{.slot = slot, .position = 0, .ids = piece(tokens, 0, 5), .state_out = 1u}});
    };
    begin(0, ids);
    begin(1, other);
    const auto want = rig.run({{.slot = 0, .position = 5, .ids = {ids[5]}, .state_in = 1u, .state_out = 2u}});
    const auto want_other = rig.run({{.slot = 1, .position = 5, .ids = {other[5]}, .state_in = 1u, .state_out = 2u}});
    std::uint64_t met = 0;
    for (std::uint64_t nth = 1; nth == met + 1 && nth < 200; ++nth) {
      // The step is too long for a graph, or replays one, whose launches are then the changes of the tables, the feed and the choice.
      const std::vector<Token> next = max_graphs == 0 ? piece(ids, 5, 7) : piece(ids, 5, 6);
      fake_cuda::inject({.call = fake_cuda::Call::kernel_launch, .nth = nth, .error = cudaErrorInvalidValue});
      const auto before = fake_cuda::calls(fake_cuda::Call::kernel_launch);
      const auto failed = rig.launch({{.slot = 0, .position = 5, .ids = next, .state_in = 1u, .state_out = 0u}});
      if (failed) {
        (void)rig.wait(failed.value());
        EXPECT_LT(fake_cuda::calls(fake_cuda::Call::kernel_launch) - before, nth);
        break;
      }
      ++met;
      EXPECT_EQ(failed.error().code, ErrorCode::device_failed);
      (void)rig.read_kv();  // the stream has passed what was enqueued
      for (std::uint64_t step = 1; step < 1000; ++step) rig.model().fed_step_settled({1, step});
      const auto again = rig.run({{.slot = 0, .position = 5, .ids = {ids[5]}, .state_in = 1u, .state_out = 2u}});
      ASSERT_TRUE(same_bits(again.logits[0], want.logits[0])) << "launch " << nth;
      const auto beside = rig.run({{.slot = 1, .position = 5, .ids = {other[5]}, .state_in = 1u, .state_out = 2u}});
      ASSERT_TRUE(same_bits(beside.logits[0], want_other.logits[0])) << "launch " << nth;
    }
    EXPECT_GT(met, max_graphs == 0 ? 50u : 1u);
  }
}

// What a sequence had computed goes on in other blocks and another version, in the middle of a block too.
TEST_F(LlamaCudaHybrid, BlocksAndStatesAreCopiedOutAndIn) {
  CudaRig rig(kPath, small());
  auto want = rig.run({{.slot = 0, .position = 0, .ids = tokens_of(11, 37)}});
  EXPECT_TRUE(rig.copy_slot(0, 1));
  (void)rig.run({{.slot = 2, .position = 0, .ids = tokens_of(12, 5)}});
  for (std::uint32_t p = 37; p < 40; ++p) {
    const Token id = want.rows[0].id;
    want = rig.run({{.slot = 0, .position = p, .ids = {id}}, {.slot = 1, .position = p, .ids = {id}}});
    EXPECT_TRUE(same_bits(want.logits[0], want.logits[1])) << p;
  }
  const std::size_t bytes = rig.model().ssm_state_bytes();
  EXPECT_EQ(bytes, std::size_t{2} * (3 * 160 + 4 * 16 * 32) * sizeof(float));
  EXPECT_EQ(rig.model().copy_state_out(24, 0, 4, nullptr, rig.stream()).error().code, ErrorCode::bad_plan);
  EXPECT_EQ(rig.model().copy_state_out(23, bytes - 3, 4, nullptr, rig.stream()).error().code, ErrorCode::bad_plan);
  EXPECT_EQ(rig.model().copy_state_in(0, bytes + 1, 0, nullptr, rig.stream()).error().code, ErrorCode::bad_plan);
}

}  // namespace
}  // namespace troupe::device
