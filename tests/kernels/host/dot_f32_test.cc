// The order lanes16 (kernels.h), bit for bit.
#include "kernels/host/dot_f32.h"

#include <gtest/gtest.h>

#include "tests/kernels/host/kernel_testing.h"

namespace troupe::kernels {
namespace {

float lanes16(const float* w, const float* x, std::size_t cols) {
  float lane[16] = {};
  for (std::size_t i = 0; i < cols; ++i) {
    const float term = w[i] * x[i];
    lane[i % 16] += term;
  }
  for (int step : {8, 4, 2, 1}) {
    for (int j = 0; j < step; ++j) lane[j] += lane[j + step];
  }
  return lane[0];
}

TEST(DotF32, EveryTargetSumsInTheOneOrder) {
  for (std::size_t cols : {16u, 64u, 160u}) {
    for (std::size_t n_rows : {1u, 4u, 7u}) {
      for (std::size_t n_tokens : {1u, 3u, 4u, 6u}) {
        const auto w = random_floats(n_rows * cols, 1), x = random_floats(n_tokens * cols, 2), base = random_floats(n_rows * n_tokens, 3);
        for (bool add : {false, true}) {
          for (Target t : targets()) {
            auto y = base;
            dot_f32(t)({w.data(), cols, n_rows, x.data(), cols, n_tokens, cols, y.data(), n_rows, add});
            for (std::size_t k = 0; k < n_tokens; ++k) {
              for (std::size_t r = 0; r < n_rows; ++r) {
                const float dot = lanes16(&w[r * cols], &x[k * cols], cols);
                ASSERT_EQ(y[k * n_rows + r], add ? base[k * n_rows + r] + dot : dot) << name(t);
              }
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace troupe::kernels
