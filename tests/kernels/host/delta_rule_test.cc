#include "kernels/host/delta_rule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "kernels/host/host_kernels.h"
#include "tests/kernels/host/kernel_testing.h"

namespace troupe::kernels {
namespace {

constexpr std::uint32_t kVersions = 6;

// One recurrent layer over a sequence of n tokens, with states of its own.
struct Layer {
  Layer(std::uint32_t k_heads, std::uint32_t v_heads, std::uint32_t k_dim, std::uint32_t v_dim, std::uint32_t taps, std::size_t n)
      : shape{nullptr, kVersions, 2, k_heads, v_heads, k_dim, v_dim, taps} {
    const std::uint32_t channels = shape.channels();
    conv = random_floats(std::size_t{taps} * channels, 1, 0.4f);
    input = random_floats(n * channels, 2);
    mixed.resize(n * channels);
    decay = random_floats(n * v_heads, 3);
    beta = random_floats(n * v_heads, 4);
    for (float& d : decay) d = 1.0f / (1.0f + std::exp(-2.0f - d));
    for (float& b : beta) b = 1.0f / (1.0f + std::exp(-b));
    out.resize(n * shape.value_width());
  }
  RecurrentArgs args(const StepRow* rows, std::uint32_t n_rows, std::size_t first) {
    return {rows,
            n_rows,
            1,
            conv.data(),
            input.data() + first * shape.channels(),
            mixed.data() + first * shape.channels(),
            decay.data() + first * shape.v_heads,
            beta.data() + first * shape.v_heads,
            out.data() + first * shape.value_width()};
  }
  // In rows of `chunk` tokens, each a step of its own; the convolution's values go into the rule as they are.
  void run(Kernels& k, std::size_t n, std::size_t chunk) {
    std::vector<float> memory(shape.floats(), 1e9f);  // what is not written must not be read
    RecurrentStates states = shape;
    states.data = memory.data();
    std::uint32_t version = kNone;
    for (std::size_t first = 0; first < n; first += chunk) {
      StepRow row;
      row.n_tokens = static_cast<std::uint32_t>(std::min(chunk, n - first));
      row.state_in = version;
      row.state_out = version = static_cast<std::uint32_t>((first / chunk) % kVersions);
      const RecurrentArgs a = args(&row, 1, first);
      k.causal_conv(a, states);
      k.delta_rule(a, states);
    }
  }

  RecurrentStates shape;
  std::vector<float> conv, input, mixed, decay, beta, out;
};

std::unique_ptr<Kernels> host(Target target, unsigned threads) {
  HostKernelsOptions o;
  o.target = target;
  o.threads = threads;
  o.max_rows = 64;
  return make_host_kernels(o);
}

struct Shape {
  std::uint32_t k_heads, v_heads, k_dim, v_dim, taps;
};
constexpr Shape kShapes[] = {{2, 4, 16, 24, 4}, {1, 1, 5, 3, 2}, {3, 3, 32, 32, 4}, {1, 4, 8, 16, 5}};

TEST(DeltaRule, IsNearTheFormula) {
  constexpr std::size_t kTokens = 40;
  for (const Shape& s : kShapes) {
    Layer layer(s.k_heads, s.v_heads, s.k_dim, s.v_dim, s.taps, kTokens);
    layer.run(*host(Target::portable, 1), kTokens, kTokens);
    const std::size_t channels = layer.shape.channels(), key_width = layer.shape.key_width();
    std::vector<double> mixed(kTokens * channels);
    for (std::size_t t = 0; t < kTokens; ++t) {
      for (std::size_t c = 0; c < channels; ++c) {
        double sum = 0;
        for (std::size_t back = 0; back < s.taps && back <= t; ++back)
          sum += static_cast<double>(layer.conv[(s.taps - 1 - back) * channels + c]) * layer.input[(t - back) * channels + c];
        mixed[t * channels + c] = sum / (1.0 + std::exp(-sum));
        ASSERT_NEAR(layer.mixed[t * channels + c], mixed[t * channels + c], 2e-6);
      }
    }
    double largest = 0, worst = 0;
    for (std::size_t h = 0; h < s.v_heads; ++h) {
      std::vector<double> state(std::size_t{s.k_dim} * s.v_dim);
      for (std::size_t t = 0; t < kTokens; ++t) {
        const double* q = &mixed[t * channels + h / (s.v_heads / s.k_heads) * s.k_dim];
        const double* k = q + key_width;
        const double* v = &mixed[t * channels + 2 * key_width + h * s.v_dim];
        const double decay = layer.decay[t * s.v_heads + h], beta = layer.beta[t * s.v_heads + h];
        for (std::size_t j = 0; j < s.v_dim; ++j) {
          double held = 0, out = 0;
          for (std::size_t i = 0; i < s.k_dim; ++i) held += (state[i * s.v_dim + j] *= decay) * k[i];
          for (std::size_t i = 0; i < s.k_dim; ++i) out += (state[i * s.v_dim + j] += k[i] * beta * (v[j] - held)) * q[i];
          largest = std::max(largest, std::fabs(out));
          worst = std::max(worst, std::fabs(out - layer.out[(t * s.v_heads + h) * s.v_dim + j]));
        }
      }
    }
    EXPECT_GT(largest, 0.01);
    EXPECT_LT(worst, 2e-5 * largest);
  }
}

// R1: not the cut, not the target, not the threads.
TEST(DeltaRule, ChunksTargetsAndThreadsGiveTheSameBits) {
  constexpr std::size_t kTokens = 23;
  for (const Shape& s : kShapes) {
    Layer first(s.k_heads, s.v_heads, s.k_dim, s.v_dim, s.taps, kTokens);
    first.run(*host(Target::portable, 1), kTokens, kTokens);
    for (const Target target : targets()) {
      for (const std::size_t chunk : {std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{7}, kTokens}) {
        Layer layer(s.k_heads, s.v_heads, s.k_dim, s.v_dim, s.taps, kTokens);
        layer.run(*host(target, chunk % 2 == 0 ? 1 : 2), kTokens, chunk);
        EXPECT_TRUE(same_bits(layer.mixed, first.mixed)) << name(target) << " chunks of " << chunk;
        EXPECT_TRUE(same_bits(layer.out, first.out)) << name(target) << " chunks of " << chunk;
      }
    }
  }
}

// Rows of several sequences in one step, at any place, and a version that is read by two of them.
TEST(DeltaRule, RowsDoNotMeet) {
  Layer alone(2, 4, 16, 24, 4, 9), together(2, 4, 16, 24, 4, 9);
  const auto k = host(best_target(), 2);
  std::vector<float> a(alone.shape.floats()), b(alone.shape.floats());
  RecurrentStates states = alone.shape;
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
  const auto layer = static_cast<std::ptrdiff_t>(alone.shape.layer_floats());
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
