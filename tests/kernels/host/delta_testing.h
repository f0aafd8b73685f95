// One recurrent layer for the tests of its kernels, on the host and on CUDA: a sequence with random values, run in rows of any size,
// and what the formula gives in double. Everything that a kernel is given lies in vectors, which last as long as the layer.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/kernels/host/kernel_testing.h"

namespace troupe::kernels {

struct DeltaShape {
  std::uint32_t k_heads, v_heads, k_dim, v_dim, taps;
};
inline constexpr DeltaShape kDeltaShapes[] = {{2, 4, 16, 24, 4}, {1, 1, 5, 3, 2}, {3, 3, 32, 32, 4}, {1, 4, 8, 16, 5}};

struct DeltaLayer {
  static constexpr std::uint32_t kVersions = 6;

  // scale: of the inputs. Keys are not normalized here, so long sequences need small ones.
  DeltaLayer(const DeltaShape& s, std::size_t n, float scale = 1.0f)
      : n_tokens(n), states{nullptr, kVersions, 2, s.k_heads, s.v_heads, s.k_dim, s.v_dim, s.taps} {
    const std::uint32_t channels = states.channels();
    conv = random_floats(std::size_t{s.taps} * channels, 1, 0.4f);
    input = random_floats(n * channels, 2, scale);
    mixed.resize(n * channels);
    decay = random_floats(n * s.v_heads, 3);
    beta = random_floats(n * s.v_heads, 4);
    for (float& d : decay) d = 1.0f / (1.0f + std::exp(-2.0f - d));
    for (float& b : beta) b = 1.0f / (1.0f + std::exp(-b));
    out.resize(n * states.value_width());
  }
  RecurrentArgs args(const StepRow* of_rows, std::uint32_t n_rows, std::size_t first) {
    std::uint32_t tokens = 0;
    for (std::uint32_t r = 0; r < n_rows; ++r) tokens += of_rows[r].n_tokens;
    return {of_rows,
            n_rows,
            tokens,
            1,
            conv.data(),
            input.data() + first * states.channels(),
            mixed.data() + first * states.channels(),
            decay.data() + first * states.v_heads,
            beta.data() + first * states.v_heads,
            out.data() + first * states.value_width()};
  }
  // In rows of `chunk` tokens, each a step of its own (0: all at once); the convolution's values go into the rule as they are.
  void run(Kernels& k, std::size_t chunk = 0) {
    if (chunk == 0) chunk = n_tokens;
    memory.assign(states.floats(), 1e9f);  // what is not written must not be read
    states.data = memory.data();
    rows.assign((n_tokens + chunk - 1) / chunk, {});
    last = kNone;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      rows[i].n_tokens = static_cast<std::uint32_t>(std::min(chunk, n_tokens - i * chunk));
      rows[i].state_in = last;
      rows[i].state_out = last = static_cast<std::uint32_t>(i % kVersions);
      const RecurrentArgs a = args(&rows[i], 1, i * chunk);
      k.causal_conv(a, states);
      k.delta_rule(a, states);
    }
  }
  // What the sequence leaves.
  std::vector<float> state() const {
    const float* from = states.at(last, 1);
    return {from, from + states.layer_floats()};
  }

  std::size_t n_tokens;
  RecurrentStates states;
  std::vector<float> conv, input, mixed, decay, beta, out, memory;
  std::vector<StepRow> rows;
  std::uint32_t last = kNone;  // the version that was written last
};

// Of a layer that has run. mixed: at most so far off; out: so far, of the largest.
inline void expect_near_formula(const DeltaLayer& layer, double mixed_off, double out_off) {
  const RecurrentStates& s = layer.states;
  const std::size_t channels = s.channels(), key_width = s.key_width();
  std::vector<double> mixed(layer.n_tokens * channels);
  for (std::size_t t = 0; t < layer.n_tokens; ++t) {
    for (std::size_t c = 0; c < channels; ++c) {
      double sum = 0;
      for (std::size_t back = 0; back < s.taps && back <= t; ++back)
        sum += static_cast<double>(layer.conv[(s.taps - 1 - back) * channels + c]) * layer.input[(t - back) * channels + c];
      mixed[t * channels + c] = sum / (1.0 + std::exp(-sum));
      ASSERT_NEAR(layer.mixed[t * channels + c], mixed[t * channels + c], mixed_off);
    }
  }
  double largest = 0, worst = 0;
  for (std::size_t h = 0; h < s.v_heads; ++h) {
    std::vector<double> state(std::size_t{s.k_dim} * s.v_dim);
    for (std::size_t t = 0; t < layer.n_tokens; ++t) {
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
  EXPECT_LT(worst, out_off * largest);
}

}  // namespace troupe::kernels
