#include "kernels/host/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace troupe::kernels {
namespace {

double value(std::uint16_t h) {  // by the definition of binary16
  const int e = (h >> 10) & 31, m = h & 1023;
  const double magnitude = e == 0 ? std::ldexp(m, -24) : std::ldexp(1024 + m, e - 25);
  return (h & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(Half, EveryHalfIsTheFloatItStandsForAndComesBack) {
  for (std::uint32_t h = 0; h < 65536; ++h) {
    const float f = half_to_float(static_cast<std::uint16_t>(h));
    if ((h & 0x7c00) == 0x7c00) {
      EXPECT_EQ(std::isnan(f), (h & 0x3ff) != 0) << h;
      EXPECT_EQ(std::isinf(f), (h & 0x3ff) == 0) << h;
      EXPECT_EQ(std::signbit(f), (h & 0x8000) != 0) << h;
      continue;
    }
    ASSERT_EQ(f, value(static_cast<std::uint16_t>(h))) << h;
    ASSERT_EQ(float_to_half(f), h);
  }
}

TEST(Half, RoundsToNearestEven) {
  std::mt19937 rng(1);
  for (int i = 0; i < 200000; ++i) {
    const auto h = static_cast<std::uint16_t>(rng() % 0x7bff);  // two neighbours, both finite
    const double a = value(h), b = value(static_cast<std::uint16_t>(h + 1));
    EXPECT_EQ(float_to_half(static_cast<float>((a + b) / 2)), h % 2 == 0 ? h : h + 1);  // exact in F32: a tie
    EXPECT_EQ(float_to_half(std::nextafter(static_cast<float>((a + b) / 2), -1.0f)), h);
    EXPECT_EQ(float_to_half(std::nextafter(static_cast<float>((a + b) / 2), 1e9f)), h + 1);
    EXPECT_EQ(float_to_half(-static_cast<float>(a)), h | 0x8000);
  }
}

TEST(Half, Extremes) {
  EXPECT_EQ(float_to_half(65504.0f), 0x7bff);
  EXPECT_EQ(float_to_half(65519.0f), 0x7bff);
  EXPECT_EQ(float_to_half(65520.0f), 0x7c00);
  EXPECT_EQ(float_to_half(1e30f), 0x7c00);
  EXPECT_EQ(float_to_half(-std::numeric_limits<float>::infinity()), 0xfc00);
  EXPECT_EQ(float_to_half(1e-30f), 0);
  EXPECT_TRUE(std::isnan(half_to_float(float_to_half(std::nanf("")))));
}

}  // namespace
}  // namespace troupe::kernels
