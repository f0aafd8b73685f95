#include "kernels/host/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/kernels/host/kernel_testing.h"

namespace troupe::kernels {
namespace {

struct Quantized {
  explicit Quantized(std::size_t cols) : codes(cols, 55), scale(cols / 32, 5.0f), offset(cols / 16, 5), sum(cols / 32, 5.0f) {}
  QuantizedRow row() { return {codes.data(), scale.data(), offset.data(), sum.data()}; }
  std::vector<std::int8_t> codes;
  std::vector<float> scale;
  std::vector<std::int32_t> offset;
  std::vector<float> sum;
};

TEST(Quantize, CodesSumsAndScales) {
  for (std::size_t cols : {32u, 96u, 576u}) {
    auto x = random_floats(cols, cols);
    for (std::size_t i = 0; i < 32; ++i) x[cols - 1 - i] = 0.0f;  // a block of zeros
    for (Target t : targets()) {
      Quantized q(cols);
      quantize(t)(x.data(), cols, q.row());
      for (std::size_t b = 0; b < cols / 32; ++b) {
        float amax = 0.0f;
        for (std::size_t i = b * 32; i < b * 32 + 32; ++i) amax = std::max(amax, std::fabs(x[i]));
        const float d = q.scale[b];
        EXPECT_EQ(d, amax / 127.0f);
        int total = 0, first = 0;
        for (std::size_t i = b * 32; i < b * 32 + 32; ++i) {
          total += q.codes[i];
          first += i % 32 < 16 ? q.codes[i] : 0;
          ASSERT_NEAR(q.codes[i] * d, x[i], d * 0.5001) << i;
        }
        EXPECT_EQ(q.offset[2 * b], -128 * first);
        EXPECT_EQ(q.offset[2 * b + 1], -128 * (total - first));
        EXPECT_EQ(q.sum[b], d * static_cast<float>(total));
      }
      Quantized first(cols);
      quantize(Target::portable)(x.data(), cols, first.row());
      EXPECT_EQ(q.codes, first.codes) << name(t);
      EXPECT_TRUE(same_bits(q.scale, first.scale));
    }
  }
}

TEST(Quantize, WhatIsNotFinitePoisonsItsBlockAlone) {
  for (float bad : {std::nanf(""), std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
    auto x = random_floats(96, 1);
    x[40] = bad;
    for (Target t : targets()) {
      Quantized q(96);
      quantize(t)(x.data(), 96, q.row());
      EXPECT_FALSE(std::isnan(q.scale[0]));
      EXPECT_TRUE(std::isnan(q.scale[1]));
      EXPECT_TRUE(std::isnan(q.sum[1]));
      EXPECT_FALSE(std::isnan(q.scale[2]));
    }
  }
}

TEST(Quantize, TinyValuesBecomeZero) {
  std::vector<float> x(32, 1e-40f);
  for (Target t : targets()) {
    Quantized q(32);
    quantize(t)(x.data(), 32, q.row());
    EXPECT_EQ(q.scale[0], 0.0f);
    for (int i = 0; i < 32; ++i) EXPECT_EQ(q.codes[i], 0);
  }
}

}  // namespace
}  // namespace troupe::kernels
