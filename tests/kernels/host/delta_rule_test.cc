#include "kernels/host/delta_rule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "kernels/host/host_kernels.h"
#include "tests/kernels/host/delta_testing.h"

namespace troupe::kernels {
namespace {

std::unique_ptr<Kernels> host(Target target, unsigned threads) {
  HostKernelsOptions o;
  o.target = target;
  o.threads = threads;
  o.max_rows = 64;
  return make_host_kernels(o);
}

TEST(DeltaRule, IsNearTheFormula) {
  for (const DeltaShape& s : kDeltaShapes) {
    DeltaLayer layer(s, 40);
    layer.run(*host(Target::portable, 1), 40);
    expect_near_formula(layer, 2e-6, 2e-5);
  }
}

// R1: not the cut, not the target, not the threads.
TEST(DeltaRule, ChunksTargetsAndThreadsGiveTheSameBits) {
  constexpr std::size_t kTokens = 23;
  for (const DeltaShape& s : kDeltaShapes) {
    DeltaLayer first(s, kTokens);
    first.run(*host(Target::portable, 1), kTokens);
    for (const Target target : targets()) {
      for (const std::size_t chunk : {std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{7}, kTokens}) {
        DeltaLayer layer(s, kTokens);
        layer.run(*host(target, chunk % 2 == 0 ? 1 : 2), chunk);
        EXPECT_TRUE(same_bits(layer.mixed, first.mixed)) << name(target) << " chunks of " << chunk;
        EXPECT_TRUE(same_bits(layer.out, first.out)) << name(target) << " chunks of " << chunk;
      }
    }
  }
}

// Rows of several sequences in one step, at any place, and a version that is read by two of them.
TEST(DeltaRule, RowsDoNotMeet) {
  DeltaLayer alone({2, 4, 16, 24, 4}, 9), together({2, 4, 16, 24, 4}, 9);
  const auto k = host(best_target(), 2);
  std::vector<float> a(alone.states.floats()), b(alone.states.floats());
  RecurrentStates states = alone.states;
  const auto start = random_floats(a.size(), 7, 0.2f);
  StepRow rows[3];
  rows[0].n_tokens = 4, rows[0].state_in = 0, rows[0].state_out = 1;
  rows[1].n_tokens = 1, rows[1].state_in = kNone, rows[1].state_out = 2;
  rows[2].n_tokens = 4, rows[2].state_in = 0, rows[2].state_out = 3;
  std::size_t first = 0;
  a = start;
  states.data = a.data();
  for (const StepRow& row : rows) {
    const RecurrentArgs args = alone.args(&row, 1, first);
    k->causal_conv(args, states);
    k->delta_rule(args, states);
    first += row.n_tokens;
  }
  b = start;
  states.data = b.data();
  const RecurrentArgs args = together.args(rows, 3, 0);
  k->causal_conv(args, states);
  k->delta_rule(args, states);
  EXPECT_TRUE(same_bits(alone.out, together.out));
  EXPECT_TRUE(same_bits(a, b)) << "the states too";
  const auto layer = static_cast<std::ptrdiff_t>(alone.states.layer_floats());
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + 2 * layer, start.begin())) << "what is read stays as it was";
  for (const std::ptrdiff_t version : {1, 2, 3})
    EXPECT_TRUE(std::equal(a.begin() + version * 2 * layer, a.begin() + (version * 2 + 1) * layer, start.begin() + version * 2 * layer))
        << "another layer's";
}

TEST(DeltaGates, AreNearTheFormula) {
  const std::vector<float> rate{0.5f, 16.0f, 1e-3f, 2.0f}, bias{1.0f, -3.0f, 0.0f, 30.0f};
  for (std::uint64_t seed = 1; seed < 50; ++seed) {
    auto a = random_floats(4, seed, 3.0f), b = random_floats(4, seed + 100, 3.0f);
    const auto x = a, y = b;
    delta_gates(a.data(), b.data(), rate.data(), bias.data(), 4);
    for (std::size_t h = 0; h < 4; ++h) {
      const double softplus = std::log1p(std::exp(static_cast<double>(x[h]) + bias[h]));
      EXPECT_NEAR(a[h], std::exp(-rate[h] * softplus), 2e-6);
      EXPECT_NEAR(b[h], 1.0 / (1.0 + std::exp(-static_cast<double>(y[h]))), 1e-6);
    }
  }
}

TEST(SigmoidMul, IsNearTheFormulaAndTheSameOnEveryTarget) {
  for (const std::size_t n : {1u, 16u, 23u, 160u}) {
    const auto x = random_floats(n, n), gate = random_floats(n, n + 1, 6.0f);
    auto first = x;
    sigmoid_mul(Target::portable)(first.data(), gate.data(), n);
    for (std::size_t i = 0; i < n; ++i) EXPECT_NEAR(first[i], x[i] / (1.0 + std::exp(-static_cast<double>(gate[i]))), 1e-6);
    for (const Target t : targets()) {
      auto y = x;
      sigmoid_mul(t)(y.data(), gate.data(), n);
      EXPECT_TRUE(same_bits(y, first)) << name(t) << " " << n;
    }
  }
}

TEST(SplitHeads, TakesTheFirstOfEachPair) {
  const auto k = host(best_target(), 1);
  const std::vector<float> from{1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 14, 15, 16, 17, 18};  // two tokens of two heads of two
  std::vector<float> first(10, 0.0f), second(8);
  k->split_heads(from.data(), 2, 2, 2, first.data(), 5, second.data());
  EXPECT_EQ(first, (std::vector<float>{1, 2, 5, 6, 0, 11, 12, 15, 16, 0}));
  EXPECT_EQ(second, (std::vector<float>{3, 4, 7, 8, 13, 14, 17, 18}));
}

}  // namespace
}  // namespace troupe::kernels
