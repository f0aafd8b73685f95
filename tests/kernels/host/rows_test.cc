#include "kernels/host/rows.h"

#include <gtest/gtest.h>

#include "tests/kernels/host/kernel_testing.h"

namespace troupe::kernels {
namespace {

constexpr Format kFormats[] = {Format::f32, Format::q8_0, Format::q4_1};

TEST(Rows, SizesAreGgmls) {
  EXPECT_EQ(row_bytes(Format::f32, 64), 256u);
  EXPECT_EQ(row_bytes(Format::q8_0, 64), 68u);
  EXPECT_EQ(row_bytes(Format::q4_1, 64), 40u);
}

TEST(Rows, DequantizedIsWhatTheFormatSaysOnEveryTarget) {
  for (Format format : kFormats) {
    for (std::uint32_t cols : {32u, 160u, 576u, 1056u}) {
      const StoredMatrix m = random_matrix(format, 2, cols, cols);
      for (Target t : targets()) {
        std::vector<float> out(cols + 1, 7.0f), first(cols);
        const std::uint8_t* row = m.bytes.data() + row_bytes(format, cols);
        unpack_f32(format, t)(row, cols, out.data());
        unpack_f32(format, Target::portable)(row, cols, first.data());
        EXPECT_EQ(out[cols], 7.0f);
        out.pop_back();
        EXPECT_TRUE(same_bits(out, first)) << name(format) << " " << name(t);
        for (std::uint32_t i = 0; i < cols; ++i) ASSERT_NEAR(out[i], m.values[cols + i], 1e-6) << name(format) << " " << cols << " " << i;
      }
    }
  }
}

TEST(Rows, CodesWithScalesAndMinimaAreTheSameValues) {
  for (Format format : kFormats) {
    if (!has_codes(format)) {
      EXPECT_EQ(unpack_codes(format, Target::portable), nullptr);
      continue;
    }
    for (std::uint32_t cols : {32u, 160u, 576u, 1056u}) {
      const StoredMatrix m = random_matrix(format, 1, cols, cols);
      for (Target t : targets()) {
        const std::size_t padded = round_up(cols, 64);
        std::vector<std::uint8_t> codes(padded, 99);
        std::vector<float> scale8(padded / 4, 9.0f), min(round_up(cols / 32, 16), 9.0f);
        unpack_codes(format, t)(m.bytes.data(), cols, {codes.data(), scale8.data(), min.data()});
        for (std::uint32_t i = 0; i < padded; ++i) {
          const double code = signed_codes(format) ? static_cast<std::int8_t>(codes[i]) : codes[i];
          const double d = scale8[i / 32 * 8 + i % 8], lowest = has_min(format) ? min[i / 32] : 0.0;
          ASSERT_NEAR(code * d + lowest, i < cols ? m.values[i] : 0.0, 1e-6) << name(format) << " " << name(t) << " " << cols << " " << i;
        }
        if (has_min(format)) {
          for (std::size_t b = cols / 32; b < min.size(); ++b) ASSERT_EQ(min[b], 0.0f);
        }
      }
    }
  }
}

}  // namespace
}  // namespace troupe::kernels
