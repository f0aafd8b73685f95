#include "kernels/philox.h"

#include <gtest/gtest.h>

namespace troupe::kernels {
namespace {

constexpr bool same(PhiloxWords a, PhiloxWords b) { return a.x[0] == b.x[0] && a.x[1] == b.x[1] && a.x[2] == b.x[2] && a.x[3] == b.x[3]; }

// The known answers that Random123 publishes (kat_vectors, philox4x32 10).
constexpr std::uint32_t kOnes = 0xffffffffu;
static_assert(same(philox4x32_10({{0, 0, 0, 0}}, 0), {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}));
static_assert(same(philox4x32_10({{kOnes, kOnes, kOnes, kOnes}}, ~0ull), {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}));
static_assert(same(philox4x32_10({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0x299f31d0a4093822),
                   {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}));

TEST(Philox, KnownAnswersAtRunTime) {
  volatile std::uint32_t zero = 0;
  EXPECT_TRUE(same(philox4x32_10({{zero, zero, zero, zero}}, zero), {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}));
}

TEST(Philox, ADrawIsTheUpper24BitsOfTheFirstWord) {
  EXPECT_EQ(philox_draw(0, 0, 0), 0x6627e8u);
  std::uint32_t least = ~0u, most = 0;
  double sum = 0;
  constexpr int kDraws = 100000;
  for (std::uint32_t i = 0; i < kDraws; ++i) {
    const std::uint32_t draw = philox_draw(42, i, 0);
    least = draw < least ? draw : least;
    most = draw > most ? draw : most;
    sum += draw;
  }
  EXPECT_LT(least, 16777u);  // a thousandth
  EXPECT_LT(most, 1u << 24);
  EXPECT_GT(most, (1u << 24) - 16777u);
  EXPECT_NEAR(sum / kDraws / 0x1p24, 0.5, 0.004);  // four standard deviations
}

TEST(Philox, SeedIndexAndChoiceAllCount) {
  const std::uint32_t draw = philox_draw(1, 2, 3);
  EXPECT_NE(draw, philox_draw(2, 2, 3));
  EXPECT_NE(draw, philox_draw(1, 3, 3));
  EXPECT_NE(draw, philox_draw(1, 2, 4));
  EXPECT_NE(draw, philox_draw(1 | 1ull << 32, 2, 3));
}

}  // namespace
}  // namespace troupe::kernels
