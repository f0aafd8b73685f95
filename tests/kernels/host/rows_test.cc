#include "kernels/host/rows.h"

#include <gtest/gtest.h>

#include "tests/kernels/host/kernel_testing.h"

namespace troupe::kernels {
namespace {

constexpr Format kFormats[] = {Format::f32,  Format::f16,  Format::bf16, Format::q8_0,
                               Format::q4_0, Format::q4_1, Format::q4_k, Format::q6_k};

TEST(Rows, SizesAreGgmls) {
  EXPECT_EQ(row_bytes(Format::f32, 64), 256u);
  EXPECT_EQ(row_bytes(Format::q8_0, 64), 68u);
  EXPECT_EQ(row_bytes(Format::q4_1, 64), 40u);
  EXPECT_EQ(row_bytes(Format::f16, 64), 128u);
  EXPECT_EQ(row_bytes(Format::bf16, 64), 128u);
  EXPECT_EQ(row_bytes(Format::q4_0, 64), 36u);
  EXPECT_EQ(row_bytes(Format::q4_k, 512), 288u);
  EXPECT_EQ(row_bytes(Format::q6_k, 512), 420u);
}

// Every word of 16 bits, NaNs with their payload included.
TEST(Rows, EveryHalfHasTheSameBitsOnEveryTarget) {
  std::vector<std::uint16_t> words(0x10000);
  for (std::uint32_t i = 0; i < words.size(); ++i) words[i] = static_cast<std::uint16_t>(i);
  for (Format format : {Format::f16, Format::bf16}) {
    std::vector<float> want(words.size());
    for (std::uint32_t i = 0; i < words.size(); ++i)
      want[i] = format == Format::f16 ? half_to_float(words[i]) : std::bit_cast<float>(i << 16);
    for (Target t : targets()) {
      std::vector<float> out(words.size());
      unpack_f32(format, t)(words.data(), words.size(), out.data());
      EXPECT_TRUE(same_bits(out, want)) << name(format) << " " << name(t);
    }
  }
}

TEST(Rows, DequantizedIsWhatTheFormatSaysOnEveryTarget) {
  for (Format format : kFormats) {
    for (std::uint32_t cols : {32u, 160u, 256u, 576u, 768u, 1056u}) {
      if (!fits(format, cols)) continue;
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
    for (std::uint32_t cols : {32u, 160u, 256u, 576u, 768u}) {
      if (!fits(format, cols)) continue;
      for (std::uint32_t rows : {1u, 5u, 16u}) {
        const StoredMatrix m = random_matrix(format, rows, cols, cols);
        for (Target t : targets()) {
          std::vector<std::uint8_t> codes(cols * kBundle, 99);
          std::vector<float> scale(cols / scale_block(format) * kBundle, 9.0f), min(cols / 32 * kBundle, 9.0f);
          unpack_codes(format, t)(m.bytes.data(), rows, cols, {codes.data(), scale.data(), min.data()});
          for (std::uint32_t r = 0; r < kBundle; ++r) {
            for (std::uint32_t i = 0; i < cols; ++i) {
              const std::uint8_t c = codes[(i / 4 * kBundle + r) * 4 + i % 4];
              const double code = signed_codes(format) ? static_cast<std::int8_t>(c) : c;
              const double d = scale[i / scale_block(format) * kBundle + r], lowest = has_min(format) ? min[i / 32 * kBundle + r] : 0.0;
              const double want = m.values[std::min(r, rows - 1) * cols + i];  // lanes past the last row repeat it
              ASSERT_NEAR(code * d + lowest, want, 1e-6) << name(format) << " " << name(t) << " " << cols << " " << r << " " << i;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace troupe::kernels
