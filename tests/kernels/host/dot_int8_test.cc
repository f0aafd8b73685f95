// The order blocks32 (kernels.h), bit for bit.
#include "kernels/host/dot_int8.h"

#include <gtest/gtest.h>

#include "tests/kernels/host/kernel_testing.h"

namespace troupe::kernels {
namespace {

struct Data {
  Data(std::size_t cols, std::size_t n_tokens, bool is_signed)
      : codes(cols * kBundle),
        x(cols * n_tokens),
        scale(random_floats(cols / 16 * kBundle, 1)),
        min(random_floats(cols / 32 * kBundle, 2)),
        x_scale(random_floats(cols / 32 * n_tokens, 3)),
        x_sum(random_floats(cols / 32 * n_tokens, 4)),
        offset(cols / 16 * n_tokens) {
    std::mt19937 rng(5);
    for (auto& c : codes) c = static_cast<std::uint8_t>(is_signed ? rng() : rng() % 16);
    for (auto& c : x) c = static_cast<std::int8_t>(static_cast<int>(rng() % 255) - 127);
    // The largest magnitudes next to each other, where 16-bit sums of pairs would saturate.
    for (std::size_t i = 0; i < 4 * kBundle; ++i) codes[i] = is_signed ? 0x80 : 15;
    for (std::size_t i = 0; i < 4; ++i) x[i] = i % 2 == 0 && is_signed ? -127 : 127;
    for (std::size_t b = 0; b < offset.size(); ++b) {
      for (std::size_t i = 0; i < 16; ++i) offset[b] -= 128 * x[b * 16 + i];
    }
  }
  std::vector<std::uint8_t> codes;
  std::vector<std::int8_t> x;
  std::vector<float> scale, min, x_scale, x_sum;
  std::vector<std::int32_t> offset;
};

TEST(DotInt8, EveryTargetSumsInTheOneOrder) {
  for (std::size_t cols : {32u, 160u, 576u}) {
    for (std::size_t n_tokens : {1u, 4u, 7u}) {
      for (std::size_t n_rows : {1u, 5u, 16u}) {
        for (int mode : {0, 1, 2, 3, 4, 5, 6, 7, 9, 13}) {
          const bool is_signed = (mode & 1) != 0, has_min = (mode & 2) != 0, add = (mode & 4) != 0, halves = (mode & 8) != 0;
          Data d(cols, n_tokens, is_signed);
          const auto base = random_floats(n_tokens * 20, 6);
          for (Target target : targets()) {
            auto y = base;
            dot_int8(target)({{d.codes.data(), d.scale.data(), d.min.data()},
                              {d.x.data(), d.x_scale.data(), d.offset.data(), d.x_sum.data()},
                              n_rows,
                              n_tokens,
                              cols,
                              is_signed,
                              has_min,
                              halves,
                              y.data(),
                              20,
                              add});
            for (std::size_t t = 0; t < n_tokens; ++t) {
              for (std::size_t r = 0; r < 20; ++r) {
                float sum = 0.0f, low = 0.0f;
                for (std::size_t b = 0; b < cols / 32 && r < n_rows; ++b) {
                  std::int32_t exact[2] = {};
                  for (std::size_t i = 0; i < 32; ++i) {
                    const std::uint8_t c = d.codes[((b * 8 + i / 4) * kBundle + r) * 4 + i % 4];
                    exact[i / 16] += (is_signed ? static_cast<std::int8_t>(c) : static_cast<int>(c)) * d.x[t * cols + b * 32 + i];
                  }
                  const std::size_t at = t * (cols / 32) + b;
                  for (std::size_t h = 0; h < (halves ? 2 : 1); ++h) {
                    const float scale = d.scale[(halves ? 2 * b + h : b) * kBundle + r] * d.x_scale[at];
                    const float term = static_cast<float>(halves ? exact[h] : exact[0] + exact[1]) * scale;
                    sum += term;
                  }
                  const float least = d.min[b * kBundle + r] * d.x_sum[at];
                  low += least;
                }
                const float dot = has_min ? sum + low : sum;
                const float want = r >= n_rows ? base[t * 20 + r] : add ? base[t * 20 + r] + dot : dot;
                ASSERT_EQ(y[t * 20 + r], want) << name(target) << " mode " << mode << " row " << r << " token " << t;
              }
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace troupe::kernels
