#include "kernels/host/simd.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/kernels/host/kernel_testing.h"

namespace troupe::kernels {
namespace {

TROUPE_SIMD_TARGETS(exp_of, (const float* x, float* y), store16(y, exp16(load16(x))))
TROUPE_SIMD_TARGETS(fold_of, (const float* x, float* y), *y = fold16(load16(x)))
TROUPE_SIMD_TARGETS(half_of, (const std::uint32_t* x, float* y), U32x16 v; std::memcpy(&v, x, sizeof v); store16(y, half16(v)))

TEST(Simd, ExpIsAccurateAndTheSameOnEveryTarget) {
  for (float x = -100.0f; x < 95.0f; x += 0.173f) {
    std::vector<float> in(16), first(16), out(16);
    for (int i = 0; i < 16; ++i) in[i] = x + 0.0107f * static_cast<float>(i);
    exp_of_pick(Target::portable)(in.data(), first.data());
    for (int i = 0; i < 16; ++i) {
      const double want = std::exp(static_cast<double>(in[i]));
      if (in[i] < -87.33f) {
        EXPECT_EQ(first[i], 0.0f) << in[i];
      } else if (in[i] > 88.37f) {
        EXPECT_EQ(first[i], std::numeric_limits<float>::infinity()) << in[i];
      } else {
        EXPECT_NEAR(first[i] / want, 1.0, 3e-7) << in[i];
      }
    }
    for (Target t : targets()) {
      exp_of_pick(t)(in.data(), out.data());
      EXPECT_TRUE(same_bits(out, first)) << name(t);
    }
  }
}

TEST(Simd, ExpOfExtremes) {
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> in(16, 0.0f), out(16);
  in[1] = inf, in[2] = -inf, in[3] = std::nanf("");
  for (Target t : targets()) {
    exp_of_pick(t)(in.data(), out.data());
    EXPECT_EQ(out[0], 1.0f);
    EXPECT_EQ(out[1], inf);
    EXPECT_EQ(out[2], 0.0f);
    EXPECT_TRUE(std::isnan(out[3]));
  }
}

TEST(Simd, FoldHasOneOrder) {
  const auto x = random_floats(16, 3);
  float v[16];
  std::copy(x.begin(), x.end(), v);
  for (int step : {8, 4, 2, 1}) {
    for (int i = 0; i < step; ++i) v[i] += v[i + step];
  }
  for (Target t : targets()) {
    float y = 0.0f;
    fold_of_pick(t)(x.data(), &y);
    EXPECT_EQ(y, v[0]) << name(t);
  }
}

TEST(Simd, HalvesAreWhatTheScalarFunctionSays) {
  for (Target t : targets()) {
    for (std::uint32_t h = 0; h < 65536; h += 16) {
      std::uint32_t in[16];
      float out[16];
      for (std::uint32_t i = 0; i < 16; ++i) in[i] = h + i;
      half_of_pick(t)(in, out);
      for (std::uint32_t i = 0; i < 16; ++i) {
        const float want = half_to_float(static_cast<std::uint16_t>(h + i));
        ASSERT_EQ(std::memcmp(&out[i], &want, 4), 0) << h + i;
      }
    }
  }
}

}  // namespace
}  // namespace troupe::kernels
