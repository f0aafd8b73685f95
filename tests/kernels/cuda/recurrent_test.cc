// The recurrent layers' kernels, and those of gated attention: near the formulas, and R1.
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/host/host_kernels.h"
#include "tests/kernels/cuda/cuda_testing.h"
#include "tests/kernels/host/delta_testing.h"

namespace troupe::kernels {
namespace {

void run(DeltaLayer& layer, std::uint64_t seed, std::size_t chunk = 0) {
  Machine m(seed);
  layer.run(*make_cuda_kernels({.stream = m.native()}), chunk);
  m.wait();
}

TEST(CudaDeltaRule, IsNearTheFormula) {
  for (const DeltaShape& s : kDeltaShapes) {
    for (const std::uint64_t seed : kSeeds) {
      DeltaLayer layer(s, 40);
      run(layer, seed);
      expect_near_formula(layer, 2e-6, 2e-5);
    }
  }
  // The other sizes of a thread's part, whole and not, and a head size that fills no strip.
  for (const DeltaShape& s : {DeltaShape{1, 2, 128, 40, 4}, {1, 1, 70, 16, 4}, {1, 2, 256, 8, 3}, {2, 2, 201, 17, 16}}) {
    DeltaLayer layer(s, 12, 0.3f);
    run(layer, 1);
    expect_near_formula(layer, 2e-6, 2e-5);
  }
}

// R1: neither the cut nor the order of threads. The convolution takes 64 tokens at a time.
TEST(CudaDeltaRule, ChunksGiveTheSameBits) {
  constexpr std::size_t kTokens = 150;
  for (const DeltaShape& s : {kDeltaShapes[0], kDeltaShapes[1], kDeltaShapes[3]}) {
    DeltaLayer first(s, kTokens, 0.3f);
    run(first, 1);
    for (const std::size_t chunk : {1, 2, 7, 63, 64, 65, 149}) {
      DeltaLayer layer(s, kTokens, 0.3f);
      run(layer, chunk + 1, chunk);
      EXPECT_TRUE(same_bits(layer.mixed, first.mixed)) << "chunks of " << chunk;
      EXPECT_TRUE(same_bits(layer.out, first.out)) << "chunks of " << chunk;
      EXPECT_TRUE(same_bits(layer.state(), first.state())) << "chunks of " << chunk;
    }
  }
}

// The state has the host's layout: one that the host left is gone on from, and the columns behind v_dim are 0.
TEST(CudaDeltaRule, TheStateIsTheHosts) {
  DeltaLayer layer(kDeltaShapes[0], 9, 0.5f), host(kDeltaShapes[0], 9, 0.5f);
  run(layer, 2, 4);
  host.run(*make_host_kernels({.max_rows = 16}), 4);
  const auto got = layer.state(), want = host.state();
  for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-5) << i;
  const RecurrentStates& s = layer.states;
  for (std::uint32_t head = 0; head < s.v_heads; ++head) {
    const std::size_t strip = s.conv_floats() + (std::size_t{head} * s.strips() + 1) * s.strip_floats();
    for (std::size_t i = 0; i < s.k_dim; ++i) {
      for (std::size_t column = s.v_dim - 16; column < 16; ++column) ASSERT_EQ(got[strip + i * 16 + column], 0.0f);
    }
  }
}

// Rows of several sequences in one step, at any place, a version that is read by two of them, and one that only fills the step up.
TEST(CudaDeltaRule, RowsDoNotMeet) {
  const DeltaShape shape{2, 4, 16, 24, 4};
  DeltaLayer alone(shape, 49, 0.5f), together(shape, 49, 0.5f);
  const auto start = random_floats(alone.states.floats(), 7, 0.2f);
  for (DeltaLayer* l : {&alone, &together}) {
    l->memory = start;
    l->states.data = l->memory.data();
    l->rows.resize(44);
    for (std::size_t r = 0; r < 40; ++r) l->rows[r] = {};  // so that a row's tokens are behind more rows than a warp has lanes
    l->rows[40].n_tokens = 4, l->rows[40].state_in = 0, l->rows[40].state_out = 1;
    l->rows[41].n_tokens = 1, l->rows[41].state_in = kNone, l->rows[41].state_out = 2;
    l->rows[42].n_tokens = 1, l->rows[42].state_in = 4, l->rows[42].state_out = kNone;
    l->rows[43].n_tokens = 3, l->rows[43].state_in = 0, l->rows[43].state_out = 3;
  }
  {
    Machine m(1);
    std::size_t first = 40;
    for (std::size_t r = 40; r < 44; first += alone.rows[r++].n_tokens) {
      const RecurrentArgs args = alone.args(&alone.rows[r], 1, first);
      launch_causal_conv(args, alone.states, m.stream());
      launch_delta_rule(args, alone.states, m.stream());
    }
    const RecurrentArgs args = together.args(together.rows.data(), 44, 0);
    launch_causal_conv(args, together.states, m.stream());
    launch_delta_rule(args, together.states, m.stream());
  }
  EXPECT_TRUE(same_bits(alone.out, together.out));
  EXPECT_TRUE(same_bits(alone.memory, together.memory)) << "the states too";
  const auto layer = static_cast<std::ptrdiff_t>(alone.states.layer_floats());
  for (const std::ptrdiff_t version : {0, 4, 5}) {
    EXPECT_TRUE(std::equal(start.begin() + version * 2 * layer, start.begin() + (version + 1) * 2 * layer,
                           together.memory.begin() + version * 2 * layer))
        << "what is not written stays as it was: version " << version;
  }
  for (const std::ptrdiff_t version : {1, 2, 3}) {
    EXPECT_TRUE(std::equal(start.begin() + version * 2 * layer, start.begin() + (version * 2 + 1) * layer,
                           together.memory.begin() + version * 2 * layer))
        << "another layer's";
  }
}

TEST(CudaDeltaGates, AreTheHosts) {
  const std::uint32_t heads = 6, n = 50;
  const std::vector<float> rate{0.5f, 16.0f, 1e-3f, 2.0f, 0.0f, 1e3f}, bias{1.0f, -3.0f, 0.0f, 30.0f, -200.0f, 19.5f};
  const auto a = random_floats(std::size_t{n} * heads, 1, 3.0f), b = random_floats(std::size_t{n} * heads, 2, 30.0f);
  auto want_a = a, want_b = b;
  make_host_kernels({.max_rows = n})->delta_gates(want_a.data(), want_b.data(), rate.data(), bias.data(), n, heads);
  for (const std::uint64_t seed : kSeeds) {
    auto got_a = a, got_b = b;
    Machine m(seed);
    launch_delta_gates(got_a.data(), got_b.data(), rate.data(), bias.data(), n, heads, m.stream());
    EXPECT_TRUE(same_bits(got_a, want_a));
    EXPECT_TRUE(same_bits(got_b, want_b));
  }
}

TEST(CudaSplitHeads, TakesTheFirstOfEachPairAndNothingElse) {
  const std::uint32_t n = 3, heads = 5, width = 24;
  const std::size_t stride = heads * width + 7;
  const auto from = random_floats(std::size_t{n} * heads * 2 * width, 1);
  std::vector<float> want_first(n * stride, 9.0f), want_second(std::size_t{n} * heads * width), first = want_first, second = want_second;
  make_host_kernels({})->split_heads(from.data(), n, heads, width, want_first.data(), stride, want_second.data());
  Machine m(1);
  launch_split_heads(from.data(), n, heads, width, first.data(), stride, second.data(), m.stream());
  EXPECT_TRUE(same_bits(first, want_first));
  EXPECT_TRUE(same_bits(second, want_second));
}

// As silu_mul_test: the exponentials are within 4e-7.
TEST(CudaSigmoidMul, IsNearTheHost) {
  const std::size_t n = 1000;
  const auto x = random_floats(n, 1);
  auto gate = random_floats(n, 2, 20.0f);
  gate[8] = -200.0f, gate[9] = 200.0f;
  auto want = x;
  make_host_kernels({})->sigmoid_mul(want.data(), gate.data(), n);
  auto got = x;
  Machine m(1);
  launch_sigmoid_mul(got.data(), gate.data(), n, m.stream());
  for (std::size_t i = 0; i < n; ++i) ASSERT_NEAR(got[i], want[i], std::fabs(want[i]) * 1.2e-6 + 1e-36) << gate[i];
  for (const std::size_t part : {1u, 127u, 128u, 129u}) {
    auto some = x;
    launch_sigmoid_mul(some.data(), gate.data(), part, m.stream());
    EXPECT_EQ(std::memcmp(some.data(), got.data(), part * 4), 0);
    EXPECT_EQ(std::memcmp(some.data() + part, x.data() + part, (n - part) * 4), 0);
  }
}

}  // namespace
}  // namespace troupe::kernels
