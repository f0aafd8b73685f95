#include "kernels/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "kernels/philox.h"
#include "kernels/sampling_math.h"

namespace troupe::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
using Logits = std::vector<float>;

// `part` of the sum in [0, 1), as a draw.
std::optional<std::uint32_t> sample(const Logits& logits, SamplingShape shape, float part) {
  SamplingScratch scratch(static_cast<std::uint32_t>(logits.size()));
  return sample_token(logits, shape, static_cast<std::uint32_t>(part * 0x1p24f), scratch);
}

Logits random_logits(std::size_t n, std::uint32_t seed, float step) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 3);
  Logits out(n);
  for (float& x : out) x = step > 0 ? std::round(normal(random) / step) * step : normal(random);
  return out;
}

TEST(BestToken, LowestIdWinsAndNanNever) {
  EXPECT_EQ(best_token(Logits{1, 3, 3, 2}), 1u);
  EXPECT_EQ(best_token(Logits{kNan, -5, kNan}), 1u);
  EXPECT_EQ(best_token(Logits{-kInfinity, kInfinity, kInfinity}), 1u);
  EXPECT_EQ(best_token(Logits{-0.0f, 0.0f}), 0u);
  EXPECT_EQ(best_token(Logits{kNan, kNan}), std::nullopt);
  EXPECT_EQ(best_token(Logits{-kInfinity, kNan}), std::nullopt);
  EXPECT_EQ(best_token(Logits{}), std::nullopt);
}

// Both ways to sort (few candidates, many), whole and cut, against std::stable_sort.
TEST(BestTokens, InOrderOfLogitThenId) {
  for (std::size_t vocab : {10u, 1023u, 1024u, 5000u}) {
    Logits logits = random_logits(vocab, 3, 0.5f);  // coarse steps: many ties
    logits[3] = kNan;
    logits[4] = -kInfinity;
    logits[5] = kInfinity;
    logits[6] = -0.0f;
    logits[7] = 0.0f;
    std::vector<std::uint32_t> want;
    for (std::uint32_t id = 0; id < vocab; ++id) {
      if (logits[id] > -kInfinity) want.push_back(id);
    }
    std::stable_sort(want.begin(), want.end(), [&](auto a, auto b) { return logits[a] > logits[b]; });
    SamplingScratch scratch(static_cast<std::uint32_t>(vocab));
    for (std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{5}, vocab / 2, vocab, vocab * 2}) {
      const auto keys = best_tokens(logits, static_cast<std::uint32_t>(n), scratch);
      ASSERT_EQ(keys.size(), std::min(n, want.size()));
      for (std::size_t i = 0; i < keys.size(); ++i) ASSERT_EQ(candidate_id(keys[i]), want[i]) << vocab << " " << n << " " << i;
    }
  }
}

// Weights 8, 4, 2, 1, 1 (of 16), not in order of id.
const Logits kPowers{std::log(2.0f), std::log(8.0f), 0, std::log(4.0f), 0};

TEST(SampleToken, InverseOfTheRunningSum) {
  for (auto [uniform, id] : std::map<float, std::uint32_t>{{0.0f, 1},
                                                           {0.499f, 1},
                                                           {0.501f, 3},
                                                           {0.749f, 3},
                                                           {0.751f, 0},
                                                           {0.874f, 0},
                                                           {0.876f, 2},
                                                           {0.937f, 2},
                                                           {0.938f, 4},
                                                           {1 - 0x1p-24f, 4}}) {
    EXPECT_EQ(sample(kPowers, {}, uniform), id) << uniform;
  }
  EXPECT_EQ(sample(Logits{0, 0}, {}, 0.5f), 1u);  // the sum must exceed, not reach
}

TEST(SampleToken, Temperature) {
  // At 0.5 the weights are squares: 64, 16, 4, 1, 1 of 86. At 2 roots: 2.828, 2, 1.414, 1, 1 of 8.243.
  EXPECT_EQ(sample(kPowers, {.temperature = 0.5f}, 0.743f), 1u);
  EXPECT_EQ(sample(kPowers, {.temperature = 0.5f}, 0.746f), 3u);
  EXPECT_EQ(sample(kPowers, {.temperature = 2}, 0.342f), 1u);
  EXPECT_EQ(sample(kPowers, {.temperature = 2}, 0.345f), 3u);
  EXPECT_EQ(sample(kPowers, {.temperature = 1e-30f}, 1 - 0x1p-24f), 1u);
}

TEST(SampleToken, TopKTopPMinP) {
  const float most = 1 - 0x1p-24f;
  EXPECT_EQ(sample(kPowers, {.top_k = 1}, most), 1u);
  EXPECT_EQ(sample(kPowers, {.top_k = 2}, most), 3u);
  EXPECT_EQ(sample(kPowers, {.top_k = 2}, 0.66f), 1u);  // 8 of 12
  EXPECT_EQ(sample(kPowers, {.top_k = 4}, most), 2u);   // of equals the lowest id stays
  EXPECT_EQ(sample(kPowers, {.top_k = 100}, most), 4u);
  EXPECT_EQ(sample(kPowers, {.top_p = 1e-9f}, most), 1u);
  EXPECT_EQ(sample(kPowers, {.top_p = 0.49f}, most), 1u);
  EXPECT_EQ(sample(kPowers, {.top_p = 0.51f}, most), 3u);
  EXPECT_EQ(sample(kPowers, {.top_p = 0.76f}, most), 0u);
  EXPECT_EQ(sample(kPowers, {.top_k = 2, .top_p = 0.6f}, most), 1u);  // of what top_k left: 8 of 12 is enough
  EXPECT_EQ(sample(kPowers, {.min_p = 0.2f}, most), 0u);              // 2 of 8
  EXPECT_EQ(sample(kPowers, {.min_p = 0.3f}, most), 3u);
  EXPECT_EQ(sample(kPowers, {.min_p = 1}, most), 1u);
  EXPECT_EQ(sample(Logits{2, 2, 1}, {.min_p = 1}, most), 1u);  // the best one's equals stay
}

TEST(SampleToken, Extremes) {
  const float most = 1 - 0x1p-24f;
  EXPECT_EQ(sample(Logits{0, 3e38f, 0}, {}, most), 1u);
  EXPECT_EQ(sample(Logits{0, 3e38f, -3e38f}, {.temperature = 1e-3f}, most), 1u);
  EXPECT_EQ(sample(Logits{kInfinity, 0, kInfinity}, {}, most), 2u);
  EXPECT_EQ(sample(Logits{kInfinity, 0, kInfinity}, {}, 0.49f), 0u);
  EXPECT_EQ(sample(Logits{-kInfinity, -1000, kNan}, {}, most), 1u);
  EXPECT_EQ(sample(Logits{-kInfinity, kNan}, {}, 0), std::nullopt);
  EXPECT_EQ(sample(Logits{}, {}, 0), std::nullopt);
}

// The definition, by sorting everything.
std::optional<std::uint32_t> defined(const Logits& logits, const SamplingShape& shape, std::uint32_t draw) {
  std::vector<std::uint32_t> ids;
  for (std::uint32_t id = 0; id < logits.size(); ++id) {
    if (logits[id] > -kInfinity) ids.push_back(id);
  }
  if (ids.empty()) return std::nullopt;
  std::stable_sort(ids.begin(), ids.end(), [&](auto a, auto b) { return logits[a] > logits[b]; });
  const float max = logits[ids[0]];
  if (shape.top_k != 0 && ids.size() > shape.top_k) ids.resize(shape.top_k);
  const auto weight = [&](std::uint32_t id) { return candidate_weight(logits[id], max, shape.temperature); };
  const auto sum = [&] {
    std::uint64_t all = 0;
    for (auto id : ids) all += fixed_weight(weight(id));
    return all;
  };
  if (shape.top_p < 1) {
    const std::uint64_t enough = enough_for_top_p(shape.top_p, sum());
    std::uint64_t running = 0;
    std::size_t kept = 0;
    while (running < enough) running += fixed_weight(weight(ids[kept++]));
    ids.resize(kept);
  }
  std::erase_if(ids, [&](auto id) { return weight(id) < shape.min_p; });
  const std::uint64_t enough = drawn_weight(draw, sum());
  std::uint64_t running = 0;
  std::size_t at = 0;
  while ((running += fixed_weight(weight(ids[at]))) < enough) ++at;
  return ids[at];
}

TEST(SampleToken, IsTheDefinition) {
  std::mt19937 random(6);
  std::size_t rare = 0;
  for (int round = 0; round < 3000; ++round) {
    const std::size_t vocab = round % 10 == 0 ? 5000 : 1 + random() % 300;
    Logits logits = random_logits(vocab, static_cast<std::uint32_t>(round), round % 3 == 0 ? 0.5f : 0);
    if (round % 7 == 0) logits[random() % vocab] = kInfinity;
    if (round % 5 == 0) {
      for (float& x : logits) x = random() % 2 == 0 ? -kInfinity : x;
    }
    SamplingShape shape;
    shape.temperature = std::array{0.01f, 0.3f, 1.0f, 5.0f}[random() % 4];
    shape.top_k = std::array<std::uint32_t, 5>{0, 0, 1, 40, 6000}[random() % 5];
    shape.top_p = std::array{1.0f, 0.0f, 0.5f, 0.95f}[random() % 4];
    shape.min_p = std::array{0.0f, 0.0f, 0.1f, 1.0f}[random() % 4];
    SamplingScratch scratch;
    for (std::uint32_t draw : {0u, static_cast<std::uint32_t>(random() >> 8), (1u << 24) - 1}) {
      const auto id = sample_token(logits, shape, draw, scratch);
      ASSERT_EQ(id, defined(logits, shape, draw)) << round << " " << draw;
      rare += id != best_token(logits);
    }
  }
  EXPECT_GT(rare, 1000u);
}

// With no limit and with limits that cut nothing, the same bits.
TEST(SampleToken, LimitsThatCutNothingChangeNothing) {
  const Logits logits = random_logits(3000, 11, 0);
  for (std::uint32_t i = 0; i < 500; ++i) {
    const float u = static_cast<float>(philox_draw(9, i, 0)) * 0x1p-24f;
    const auto id = sample(logits, {}, u);
    EXPECT_EQ(sample(logits, {.top_k = 3000}, u), id);
    EXPECT_EQ(sample(logits, {.min_p = 1e-30f}, u), id);
  }
}

// Sum of (seen - expected)^2 / expected over 8 ids, for `draws` at `sampled` against the probabilities at `claimed`.
double chi_squared(float sampled, float claimed) {
  const Logits logits{0, 1, 2, -1, 0.5f, 1.5f, -2, 3};
  constexpr int kDraws = 100000;
  std::array<int, 8> seen{};
  SamplingScratch scratch(8);
  for (std::uint32_t i = 0; i < kDraws; ++i) ++seen[*sample_token(logits, {.temperature = sampled}, philox_draw(1234, i, 0), scratch)];
  double sum = 0, result = 0;
  for (float x : logits) sum += std::exp(static_cast<double>(x) / claimed);
  for (std::size_t i = 0; i < 8; ++i) {
    const double expected = kDraws * std::exp(static_cast<double>(logits[i]) / claimed) / sum;
    result += (seen[i] - expected) * (seen[i] - expected) / expected;
  }
  return result;
}

// 7 degrees of freedom: above 29.9 once in 10,000.
TEST(SampleToken, FollowsTheDistribution) {
  EXPECT_LT(chi_squared(1, 1), 29.9);
  EXPECT_LT(chi_squared(0.7f, 0.7f), 29.9);
  EXPECT_GT(chi_squared(1, 1.1f), 29.9);
  EXPECT_GT(chi_squared(0.7f, 1), 29.9);
}

TEST(LogSoftmax, NearTheExactValue) {
  const Logits logits = random_logits(49152, 5, 0);
  double max = -1e30, sum = 0;
  for (float x : logits) max = std::max(max, static_cast<double>(x));
  for (float x : logits) sum += std::exp(x - max);
  const LogSoftmax p(logits);
  for (std::size_t i = 0; i < logits.size(); i += 97) EXPECT_NEAR(p.at(logits[i]), logits[i] - max - std::log(sum), 3e-6);
}

TEST(LogSoftmax, Extremes) {
  EXPECT_EQ(LogSoftmax(Logits{5}).at(5), 0.0f);
  EXPECT_EQ(LogSoftmax(Logits{kNan, 5, -kInfinity}).at(5), 0.0f);
  EXPECT_EQ(LogSoftmax(Logits{5, 1e38f}).at(5), -1e38f);
  EXPECT_NEAR(LogSoftmax(Logits{kInfinity, 1, kInfinity}).at(kInfinity), -std::log(2.0f), 1e-6);
  EXPECT_EQ(LogSoftmax(Logits{5, 1}).at(-kInfinity), -kInfinity);
}

}  // namespace
}  // namespace troupe::kernels
