// Rows of F16 and BF16 as stored: on each target the bits of the portable path that unpacks them first.
#include "kernels/host/dot_half.h"

#include <gtest/gtest.h>

#include "kernels/host/dot_f32.h"
#include "kernels/host/rows.h"
#include "tests/kernels/host/kernel_testing.h"

namespace troupe::kernels {
namespace {

class DotHalfTest : public testing::TestWithParam<Format> {};

TEST_P(DotHalfTest, HasTheBitsOfUnpackedRows) {
  const Format format = GetParam();
  for (const std::size_t cols : {16u, 48u, 160u, 576u}) {
    for (const std::size_t n_rows : {1u, 2u, 7u, 8u, 16u, 19u}) {
      const StoredMatrix m = random_matrix(format, static_cast<std::uint32_t>(n_rows), static_cast<std::uint32_t>(cols), cols + n_rows);
      std::vector<float> w(n_rows * cols);
      for (std::size_t r = 0; r < n_rows; ++r) unpack_f32(format, Target::portable)(m.bytes.data() + r * cols * 2, cols, &w[r * cols]);
      std::vector<std::uint8_t> odd(m.bytes.size() + 1);  // rows need not be aligned
      std::copy(m.bytes.begin(), m.bytes.end(), odd.begin() + 1);
      for (std::size_t n_tokens = 1; n_tokens <= 7; ++n_tokens) {
        const std::size_t stride = cols + 16;
        const auto x = random_floats(n_tokens * stride, 2), base = random_floats(n_tokens * n_rows, 3);
        for (const bool add : {false, true}) {
          auto want = base;
          dot_f32(Target::portable)({w.data(), cols, n_rows, x.data(), stride, n_tokens, cols, want.data(), n_rows, add});
          for (Target t : targets()) {
            auto y = base;
            dot_half(format, t)({odd.data() + 1, n_rows, x.data(), stride, n_tokens, cols, y.data(), n_rows, add});
            ASSERT_TRUE(same_bits(y, want)) << name(t) << " " << cols << " columns, " << n_rows << " rows, " << n_tokens << " tokens";
          }
        }
      }
    }
  }
}

// Every word there is, one at a time: subnormal numbers, infinities, and that a NaN is one.
TEST_P(DotHalfTest, EveryWord) {
  const Format format = GetParam();
  for (Target t : targets()) {
    for (std::uint32_t word = 0; word < 0x10000; ++word) {
      std::uint16_t w[16] = {static_cast<std::uint16_t>(word)};
      const float x[16] = {1.0f};
      float y = 0.0f;
      dot_half(format, t)({reinterpret_cast<const std::uint8_t*>(w), 1, x, 16, 1, 16, &y, 1, false});
      const float want = format == Format::f16 ? half_to_float(w[0]) : std::bit_cast<float>(word << 16);
      if (want != want)
        ASSERT_NE(y, y) << name(t) << " " << word;
      else
        ASSERT_EQ(y, want) << name(t) << " " << word;
    }
  }
}

TEST(DotHalf, IsForHalvesOnly) {
  for (Format f : {Format::f32, Format::q8_0, Format::q4_k}) EXPECT_EQ(dot_half(f, best_target()), nullptr);
}

INSTANTIATE_TEST_SUITE_P(Formats, DotHalfTest, testing::Values(Format::f16, Format::bf16),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace troupe::kernels
