#include "kernels/host/argmax.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/kernels/host/kernel_testing.h"

namespace troupe::kernels {
namespace {

const float kNan = std::nanf(""), kInf = std::numeric_limits<float>::infinity();

std::uint32_t plain(const std::vector<float>& v, std::uint32_t a = kNone, std::uint32_t b = kNone) {
  std::uint32_t best = kNone;
  for (std::uint32_t i = 0; i < v.size(); ++i) {
    if (i == a || i == b || std::isnan(v[i])) continue;
    if (best == kNone || v[i] > v[best]) best = i;
  }
  return best;
}

TEST(Argmax, LowestIndexWinsNanNever) {
  for (Target t : targets()) {
    const auto f = [t](const std::vector<float>& v) { return argmax(v.data(), v.size(), t); };
    EXPECT_EQ(f({1, 3, 3, 2}), 1u);
    EXPECT_EQ(f({-0.0f, 0.0f}), 0u);
    EXPECT_EQ(f({kNan, -5, kNan}), 1u);
    EXPECT_EQ(f({kNan, kNan}), kNone);
    EXPECT_EQ(f({}), kNone);
    EXPECT_EQ(f({-kInf, -kInf}), 0u);
    EXPECT_EQ(f({kNan, -kInf}), 1u);
    EXPECT_EQ(f({kInf, kNan, kInf}), 0u);
    EXPECT_EQ(f(std::vector<float>(40, kNan)), kNone);
    EXPECT_EQ(f(std::vector<float>(40, -kInf)), 0u);
  }
}

TEST(Argmax, AgreesWithAPlainLoopOnRowsFullOfTiesAndNans) {
  std::mt19937 rng(1);
  for (int round = 0; round < 3000; ++round) {
    std::vector<float> v(1 + rng() % 70);
    for (float& x : v) x = rng() % 5 == 0 ? kNan : rng() % 7 == 0 ? -kInf : static_cast<float>(rng() % 4);
    const auto n = static_cast<std::uint32_t>(v.size());
    const auto pick = [&]() -> std::uint32_t { return rng() % 3 == 0 ? kNone : rng() % 3 == 0 ? plain(v) : rng() % (n + 2); };
    const std::uint32_t a = pick(), b = pick(), p = plain(v);
    const std::uint32_t want = p != kNone && (p == a || p == b) ? plain(v, a, b) : p;
    for (Target t : targets()) {
      ASSERT_EQ(argmax(v.data(), v.size(), t), p);
      ASSERT_EQ(masked_argmax(v.data(), v.size(), a, b, t), want) << name(t) << " mask " << a << "," << b;
    }
  }
}

TEST(MaskedArgmax, TheMaskCountsOnlyIfItHitsTheArgmax) {
  const std::vector<float> v{5, 9, 7, 8};
  const auto f = [&](std::uint32_t a, std::uint32_t b) { return masked_argmax(v.data(), v.size(), a, b, best_target()); };
  EXPECT_EQ(f(kNone, kNone), 1u);
  EXPECT_EQ(f(3, 2), 1u);
  EXPECT_EQ(f(1, kNone), 3u);
  EXPECT_EQ(f(kNone, 1), 3u);
  EXPECT_EQ(f(3, 1), 2u);
  EXPECT_EQ(f(1, 1), 3u);
  EXPECT_EQ(f(1, 77), 3u);
}

TEST(MaskedArgmax, NothingLeft) {
  const std::vector<float> two{5, 9}, rest_nan{kNan, 9, kNan, 8};
  EXPECT_EQ(masked_argmax(two.data(), 2, 1, 0, best_target()), kNone);
  EXPECT_EQ(masked_argmax(rest_nan.data(), 4, 1, 3, best_target()), kNone);
}

}  // namespace
}  // namespace troupe::kernels
