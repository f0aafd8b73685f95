#include "kernels/host/silu_mul.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/host/kernel_testing.h"

namespace troupe::kernels {
namespace {

TEST(SiluMul, IsNearTheFormulaAndTheSameOnEveryTarget) {
  for (std::size_t n : {1u, 16u, 23u, 160u, 1536u}) {
    const auto gate = random_floats(n, n, 8.0f), up = random_floats(n, n + 1);
    auto first = gate;
    silu_mul(Target::portable)(first.data(), up.data(), n);
    for (std::size_t i = 0; i < n; ++i) {
      const double want = gate[i] / (1.0 + std::exp(-static_cast<double>(gate[i]))) * up[i];
      EXPECT_NEAR(first[i], want, 1e-6 * std::fabs(want) + 1e-12);
    }
    for (Target t : targets()) {
      auto y = gate;
      silu_mul(t)(y.data(), up.data(), n);
      EXPECT_TRUE(same_bits(y, first)) << name(t) << " " << n;
    }
  }
}

TEST(SiluMul, Extremes) {
  std::vector<float> gate{-200.0f, 200.0f, std::nanf(""), 0.0f}, up(4, 2.0f);
  silu_mul(best_target())(gate.data(), up.data(), 4);
  EXPECT_EQ(gate[0], 0.0f);
  EXPECT_EQ(gate[1], 400.0f);
  EXPECT_TRUE(std::isnan(gate[2]));
  EXPECT_EQ(gate[3], 0.0f);
}

}  // namespace
}  // namespace troupe::kernels
