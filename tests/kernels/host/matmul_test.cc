#include "kernels/host/matmul.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/host/kernel_testing.h"

namespace troupe::kernels {
namespace {

constexpr Format kFormats[] = {Format::f32,  Format::f16,  Format::bf16, Format::q8_0,
                               Format::q4_0, Format::q4_1, Format::q4_k, Format::q6_k};

// x as the fast mode sees it: 8-bit codes times their block's scale.
std::vector<double> rounded(const std::vector<float>& x) {
  std::vector<double> out(x.size());
  for (std::size_t b = 0; b < x.size(); b += 32) {
    double amax = 0.0;
    for (std::size_t i = b; i < b + 32; ++i) amax = std::max(amax, std::fabs(static_cast<double>(x[i])));
    for (std::size_t i = b; i < b + 32; ++i) out[i] = amax == 0.0 ? 0.0 : std::nearbyint(x[i] * 127.0 / amax) * amax / 127.0;
  }
  return out;
}

std::vector<float> product(const Weight& w, const std::vector<float>& x, Target target, bool exact, unsigned threads) {
  const std::size_t n = x.size() / w.cols;
  ThreadPool pool(threads);
  Matmul matmul(target, exact, n, w.cols, pool);
  std::vector<float> y(n * w.rows);
  matmul.run(std::vector{MatmulJob{w, y.data(), w.rows, false}}, x.data(), n, w.cols);
  return y;
}

class MatmulTest : public testing::TestWithParam<std::tuple<Format, bool>> {};

TEST_P(MatmulTest, IsNearTheProductInDouble) {
  const auto [format, exact] = GetParam();
  for (std::uint32_t cols : {32u, 160u, 256u, 576u, 768u}) {
    if (!fits(format, cols)) continue;
    const std::uint32_t rows = 37, n = 11;
    const StoredMatrix m = random_matrix(format, rows, cols, cols);
    const auto x = random_floats(std::size_t{n} * cols, 2);
    const bool codes = !exact && has_codes(format);
    const std::vector<double> seen = codes ? rounded(x) : std::vector<double>(x.begin(), x.end());
    for (Target target : targets()) {
      const auto y = product(m.weight, x, target, exact, 1);
      for (std::uint32_t t = 0; t < n; ++t) {
        for (std::uint32_t r = 0; r < rows; ++r) {
          double want = 0.0, size = 0.0;
          for (std::uint32_t i = 0; i < cols; ++i) {
            const double term = m.values[std::size_t{r} * cols + i] * seen[std::size_t{t} * cols + i];
            want += term;
            size += std::fabs(term);
          }
          // A code that lies on a rounding boundary may fall either way: half a step of one element.
          ASSERT_NEAR(y[t * rows + r], want, size * (codes ? 2e-4 : 2e-6))
              << name(format) << " " << name(target) << " row " << r << " token " << t;
        }
      }
    }
  }
}

TEST_P(MatmulTest, BitsDependOnTheRowAlone) {
  const auto [format, exact] = GetParam();
  const std::uint32_t cols = fits(format, 160) ? 160 : 512, rows = 53, n = 21;
  const StoredMatrix m = random_matrix(format, rows, cols, 4);
  const auto x = random_floats(std::size_t{n} * cols, 5);
  const auto all = product(m.weight, x, Target::portable, exact, 1);
  for (Target target : targets()) {
    for (unsigned threads : {1u, 2u, 3u})
      EXPECT_TRUE(same_bits(product(m.weight, x, target, exact, threads), all)) << name(target) << threads;
    for (std::uint32_t size : {1u, 2u, 3u, 4u, 5u, 8u, 13u, 16u, 17u}) {  // any window of tokens
      for (std::uint32_t t = 0; t + size <= n; t += 3) {
        const std::vector<float> part(x.begin() + t * cols, x.begin() + (t + size) * cols);
        const auto y = product(m.weight, part, target, exact, 2);
        EXPECT_TRUE(same_bits(y, {all.begin() + t * rows, all.begin() + (t + size) * rows})) << name(target) << " " << t << "+" << size;
      }
    }
    for (std::uint32_t first : {1u, 16u, 52u}) {  // any window of output rows
      Weight part = m.weight;
      part.data = m.bytes.data() + first * row_bytes(format, cols);
      part.rows = rows - first;
      const auto y = product(part, x, target, exact, 1);
      for (std::uint32_t t = 0; t < n; ++t) {
        for (std::uint32_t r = first; r < rows; ++r) ASSERT_EQ(y[t * part.rows + r - first], all[t * rows + r]);
      }
    }
  }
}

TEST_P(MatmulTest, JobsShareTheirInputAndMayAdd) {
  const auto [format, exact] = GetParam();
  const std::uint32_t cols = fits(format, 64) ? 64 : 256, n = 3;
  const StoredMatrix a = random_matrix(format, 20, cols, 1), b = random_matrix(Format::f32, 7, cols, 2);
  const auto x = random_floats(std::size_t{n} * cols, 3);
  const auto ya = product(a.weight, x, best_target(), exact, 1), yb = product(b.weight, x, best_target(), exact, 1);
  ThreadPool pool(2);
  Matmul matmul(best_target(), exact, n, cols, pool);
  std::vector<float> y(n * 27, 0.5f);  // side by side
  matmul.run(std::vector{MatmulJob{a.weight, y.data(), 27, true}, MatmulJob{b.weight, y.data() + 20, 27, false}}, x.data(), n, cols);
  for (std::uint32_t t = 0; t < n; ++t) {
    for (std::uint32_t r = 0; r < 27; ++r) ASSERT_EQ(y[t * 27 + r], r < 20 ? 0.5f + ya[t * 20 + r] : yb[t * 7 + r - 20]);
  }
}

TEST_P(MatmulTest, ABiasIsAddedLast) {
  const auto [format, exact] = GetParam();
  const std::uint32_t cols = fits(format, 64) ? 64 : 256, rows = 20, n = 5;
  const StoredMatrix m = random_matrix(format, rows, cols, 1);
  const auto x = random_floats(std::size_t{n} * cols, 3), bias = random_floats(rows, 4);
  const auto without = product(m.weight, x, best_target(), exact, 1);
  ThreadPool pool(2);
  Matmul matmul(best_target(), exact, n, cols, pool);
  std::vector<float> y(std::size_t{n} * rows, 0.5f);
  matmul.run(std::vector{MatmulJob{m.weight, y.data(), rows, true, bias.data()}}, x.data(), n, cols);
  for (std::size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], (0.5f + without[i]) + bias[i % rows]);
}

TEST_P(MatmulTest, NanStaysInItsToken) {
  const auto [format, exact] = GetParam();
  const std::uint32_t cols = fits(format, 64) ? 64 : 256;
  const StoredMatrix m = random_matrix(format, 18, cols, 1);
  auto x = random_floats(std::size_t{3} * cols, 3);
  x[cols + 40] = std::nanf("");
  for (Target target : targets()) {
    const auto y = product(m.weight, x, target, exact, 1);
    for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i / 18 == 1) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, MatmulTest, testing::Combine(testing::ValuesIn(kFormats), testing::Bool()), [](const auto& info) {
  return std::string(name(std::get<0>(info.param))) + (std::get<1>(info.param) ? "_exact" : "_fast");
});

}  // namespace
}  // namespace troupe::kernels
