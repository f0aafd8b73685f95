#include "kernels/host/rmsnorm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/host/kernel_testing.h"

namespace troupe::kernels {
namespace {

TEST(RmsNorm, IsNearTheFormulaAndTheSameOnEveryTarget) {
  for (std::size_t width : {1u, 15u, 16u, 64u, 70u, 576u}) {
    const auto x = random_floats(width, width, 3.0f), gain = random_floats(width, width + 1);
    double squares = 0.0;
    for (float v : x) squares += static_cast<double>(v) * v;
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(width) + 1e-5);
    std::vector<float> first(width);
    rms_norm(Target::portable)(x.data(), gain.data(), first.data(), width, 1e-5f);
    for (std::size_t i = 0; i < width; ++i) EXPECT_NEAR(first[i], x[i] * scale * gain[i], 2e-6 * std::fabs(first[i]) + 1e-7);
    for (Target t : targets()) {
      auto y = x;  // in place
      rms_norm(t)(y.data(), gain.data(), y.data(), width, 1e-5f);
      EXPECT_TRUE(same_bits(y, first)) << name(t) << " " << width;
    }
  }
}

TEST(RmsNorm, ZeroStaysZero) {
  std::vector<float> x(32, 0.0f), gain(32, 2.0f), y(32, 1.0f);
  rms_norm(best_target())(x.data(), gain.data(), y.data(), 32, 1e-5f);
  for (float v : y) EXPECT_EQ(v, 0.0f);
}

}  // namespace
}  // namespace troupe::kernels
