#include "kernels/sampling_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace troupe::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

double relative(double ours, double right) { return std::abs(ours - right) / std::abs(right); }

TEST(ExpFloat, NearTheExactValueOverItsRange) {
  double worst = 0;
  for (int i = -8733000; i <= 8872000; ++i) {
    const float x = static_cast<float>(i) * 1e-5f;
    if (x < -87.33f || x > 88.72f) continue;
    worst = std::max(worst, relative(exp_float(x), std::exp(static_cast<double>(x))));
  }
  EXPECT_LT(worst, 4e-7);
  for (float x = 1e-30f; x < 1e-3f; x *= 1.7f) {
    EXPECT_LT(relative(exp_float(x), std::exp(static_cast<double>(x))), 4e-7);
    EXPECT_LT(relative(exp_float(-x), std::exp(-static_cast<double>(x))), 4e-7);
  }
}

TEST(ExpFloat, Ends) {
  EXPECT_EQ(exp_float(0.0f), 1.0f);
  EXPECT_EQ(exp_float(-0.0f), 1.0f);
  EXPECT_EQ(exp_float(-87.4f), 0.0f);
  EXPECT_EQ(exp_float(-kInfinity), 0.0f);
  EXPECT_EQ(exp_float(89.0f), kInfinity);
  EXPECT_EQ(exp_float(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(exp_float(kNan)));
  EXPECT_TRUE(std::isfinite(exp_float(88.72f)));
}

TEST(ExpFloat, NeverFalls) {
  float before = 0;
  for (int i = -9000000; i <= 0; ++i) {
    const float e = exp_float(static_cast<float>(i) * 1e-5f);
    ASSERT_GE(e, before * (1 - 2e-7f)) << i;
    before = e;
  }
}

TEST(LogFloat, NearTheExactValueOverItsRange) {
  double worst = 0;
  // Every 1001st float, subnormal ones too.
  for (std::uint32_t bits = 1; bits < 0x7f800000u; bits += 1001) {
    const float x = float_from_bits(bits);
    if (x == 1.0f) continue;
    worst = std::max(worst, relative(log_float(x), std::log(static_cast<double>(x))));
  }
  EXPECT_LT(worst, 3e-7);
  for (std::uint32_t i = 1; i < 2000; ++i) {  // around 1, where the result is small
    for (std::uint32_t bits : {0x3f800000u + i, 0x3f800000u - i}) {
      const float x = float_from_bits(bits);
      EXPECT_LT(relative(log_float(x), std::log(static_cast<double>(x))), 3e-7) << x;
    }
  }
}

TEST(LogFloat, Ends) {
  EXPECT_EQ(log_float(1.0f), 0.0f);
  EXPECT_EQ(log_float(0.0f), -kInfinity);
  EXPECT_EQ(log_float(-0.0f), -kInfinity);
  EXPECT_EQ(log_float(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(log_float(-1.0f)));
  EXPECT_TRUE(std::isnan(log_float(kNan)));
}

TEST(CandidateKey, DescendingLogitThenAscendingId) {
  const float values[] = {kInfinity, 3e38f, 1.5f, 1e-40f, 0.0f, -1e-40f, -1.5f, -3e38f, -kInfinity};
  for (std::size_t i = 0; i + 1 < std::size(values); ++i) {
    EXPECT_LT(candidate_key(values[i], 0xffffffffu), candidate_key(values[i + 1], 0));
    EXPECT_LT(candidate_key(values[i], 3), candidate_key(values[i], 4));
    EXPECT_EQ(candidate_id(candidate_key(values[i], 77)), 77u);
  }
  EXPECT_EQ(candidate_key(-0.0f, 5), candidate_key(0.0f, 5));
}

// A few bits, so that a change of arithmetic (contraction, another order) shows on any machine.
TEST(SamplingMath, PinnedBits) {
  std::uint32_t sum = 0;
  for (int i = 0; i < 4096; ++i) {
    sum = sum * 31 + float_bits(exp_float(-static_cast<float>(i) * 0.01953125f));
    sum = sum * 31 + float_bits(log_float(1.0f + static_cast<float>(i) * 0.01953125f));
  }
  EXPECT_EQ(sum, 531377581u);
}

}  // namespace
}  // namespace troupe::kernels
