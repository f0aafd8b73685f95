#include "kernels/host/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/host/rows.h"
#include "tests/kernels/host/kernel_testing.h"

namespace troupe::kernels {
namespace {

struct Quantized {
  explicit Quantized(std::size_t cols)
      : codes(round_up(cols, 64), 55), scale8(round_up(cols, 64) / 4, 5.0f), offset(round_up(cols, 64) / 4, 5), sum(round_up(cols / 32, 16), 5.0f) {}
  QuantizedRow row() { return {codes.data(), scale8.data(), offset.data(), sum.data()}; }
  std::vector<std::int8_t> codes;
  std::vector<float> scale8;
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
      for (std::size_t b = 0; b < round_up(cols, 64) / 32; ++b) {
        float amax = 0.0f;
        for (std::size_t i = b * 32; i < b * 32 + 32 && i < cols; ++i) amax = std::max(amax, std::fabs(x[i]));
        const float d = q.scale8[b * 8];
        EXPECT_EQ(d, amax / 127.0f);
        int total = 0;
        for (std::size_t j = 0; j < 8; ++j) {
          int s = 0;
          for (std::size_t i = b * 32 + 4 * j; i < b * 32 + 4 * j + 4; ++i) {
            s += q.codes[i];
            ASSERT_NEAR(q.codes[i] * d, i < cols ? x[i] : 0.0f, d * 0.5001) << i;
          }
          EXPECT_EQ(q.offset[b * 8 + j], -128 * s);
          EXPECT_EQ(q.scale8[b * 8 + j], d);
          total += s;
        }
        EXPECT_EQ(q.sum[b], d * static_cast<float>(total));
      }
      for (std::size_t b = cols / 32; b < q.sum.size(); ++b) EXPECT_EQ(q.sum[b], 0.0f);
      Quantized first(cols);
      quantize(Target::portable)(x.data(), cols, first.row());
      EXPECT_EQ(q.codes, first.codes) << name(t);
      EXPECT_TRUE(same_bits(q.scale8, first.scale8));
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
      EXPECT_FALSE(std::isnan(q.scale8[0]));
      EXPECT_TRUE(std::isnan(q.scale8[8]));
      EXPECT_TRUE(std::isnan(q.sum[1]));
      EXPECT_FALSE(std::isnan(q.scale8[16]));
    }
  }
}

TEST(Quantize, TinyValuesBecomeZero) {
  std::vector<float> x(32, 1e-40f);
  for (Target t : targets()) {
    Quantized q(32);
    quantize(t)(x.data(), 32, q.row());
    EXPECT_EQ(q.scale8[0], 0.0f);
    for (int i = 0; i < 32; ++i) EXPECT_EQ(q.codes[i], 0);
  }
}

}  // namespace
}  // namespace troupe::kernels
