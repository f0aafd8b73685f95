#include <cstring>

#include "kernels/host/matmul.h"
#include "tests/kernels/cuda/cuda_testing.h"

namespace troupe::kernels {
namespace {

constexpr Format kFormats[] = {Format::f32,  Format::f16,  Format::bf16, Format::q8_0,
                               Format::q4_0, Format::q4_1, Format::q4_k, Format::q6_k};

std::vector<float> product(const Weight& w, const std::vector<float>& x, std::uint64_t seed, std::uint32_t tile = 0) {
  Machine m(seed);
  const auto n = static_cast<std::uint32_t>(x.size() / w.cols);
  std::vector<float> y(std::size_t{n} * w.rows, std::nanf(""));
  launch_matmul({w, y.data(), w.rows, false, nullptr}, x.data(), n, m.stream(), tile);
  return y;
}

class CudaMatmul : public testing::TestWithParam<Format> {};

// Against the sum in double over operands rounded to BF16: products of two BF16 are exact in F32, so what is left is F32's
// rounding of at most one sum a column: cols * 2^-24 of the sum of magnitudes. (The emulation rounds once per 16.)
// Against the host's exact kernel, which rounds neither operand: two roundings of 2^-9 a product, so 2 * 2^-9 of the
// magnitudes, and a little for what is of second order.
TEST_P(CudaMatmul, IsNearTheProduct) {
  const Format format = GetParam();
  for (std::uint32_t cols : {32u, 96u, 256u, 512u}) {
    if (!fits(format, cols)) continue;
    const std::uint32_t rows = 75, n = 11;
    const StoredMatrix m = random_matrix(format, rows, cols, cols);
    const auto x = random_floats(std::size_t{n} * cols, 2);
    const auto y = product(m.weight, x, cols);
    ThreadPool pool(1);
    Matmul host(best_target(), true, n, cols, pool);
    std::vector<float> exact(y.size());
    host.run(std::vector{MatmulJob{m.weight, exact.data(), rows, false}}, x.data(), n, cols);
    for (std::uint32_t t = 0; t < n; ++t) {
      for (std::uint32_t r = 0; r < rows; ++r) {
        double want = 0.0, rounded_size = 0.0, size = 0.0;
        for (std::uint32_t i = 0; i < cols; ++i) {
          // As the kernel sees it: the stored value in F32, then in BF16.
          const double w = m.values[std::size_t{r} * cols + i], v = x[std::size_t{t} * cols + i];
          const double term = rounded_bf16(static_cast<float>(w)) * rounded_bf16(v);
          want += term;
          rounded_size += std::fabs(term);
          size += std::fabs(w * v);
        }
        const double got = y[t * rows + r];
        // A weight whose F32 arithmetic (d q + m) lies on a boundary of BF16 may fall either way: of the 32 to 512 at most
        // one or two, each of less than 2^-8 of a term.
        const bool may_flip = format == Format::q4_1 || format == Format::q4_k;
        ASSERT_NEAR(got, want, rounded_size * (cols * kF32Unit + (may_flip ? 4 * kBf16Unit / cols : 0.0)))
            << name(format) << " " << r << " " << t;
        ASSERT_NEAR(got, exact[t * rows + r], size * 2.02 * kBf16Unit) << name(format) << " " << r << " " << t;
      }
    }
  }
}

// R1: whatever the number of rows and the row's place.
TEST_P(CudaMatmul, EveryRowCount) {
  const Format format = GetParam();
  const std::uint32_t cols = fits(format, 64) ? 64 : 256, rows = 17, most = 256;
  const StoredMatrix m = random_matrix(format, rows, cols, 4);
  const auto x = random_floats(std::size_t{most} * cols, 5);
  const auto all = product(m.weight, x, 1);
  for (std::uint32_t n = 1; n <= most; ++n) {
    const std::uint32_t first = n * 7 % (most - n + 1);  // any window
    const auto y = product(m.weight, piece_of(x, std::size_t{first} * cols, std::size_t{first + n} * cols), n);
    ASSERT_TRUE(same_bits(y, piece_of(all, std::size_t{first} * rows, std::size_t{first + n} * rows))) << n << " rows from " << first;
  }
}

// R1: whatever the tile, the order of threads and the piece of the matrix.
TEST_P(CudaMatmul, BitsDependOnTheRowAlone) {
  const Format format = GetParam();
  const std::uint32_t cols = fits(format, 64) ? 64 : 256, rows = 37, most = 72;
  const StoredMatrix m = random_matrix(format, rows, cols, 4);
  const auto x = random_floats(std::size_t{most} * cols, 5);
  const auto all = product(m.weight, x, 1);
  for (std::uint32_t tile : {8u, 16u, 32u, 64u}) {
    for (std::uint64_t seed : kSeeds) EXPECT_TRUE(same_bits(product(m.weight, x, seed, tile), all)) << tile;
  }
  for (std::uint32_t first : {1u, 16u, 36u}) {  // any window of output rows
    Weight part = m.weight;
    part.data = m.bytes.data() + first * row_bytes(format, cols);
    part.rows = rows - first;
    const auto y = product(part, x, 1);
    for (std::uint32_t t = 0; t < most; ++t) {
      for (std::uint32_t r = first; r < rows; ++r) ASSERT_EQ(y[t * part.rows + r - first], all[t * rows + r]);
    }
  }
}

TEST_P(CudaMatmul, NanStaysInItsRow) {
  const Format format = GetParam();
  const std::uint32_t cols = fits(format, 64) ? 64 : 256;
  const StoredMatrix m = random_matrix(format, 18, cols, 1);
  auto x = random_floats(std::size_t{3} * cols, 3);
  x[cols + 40] = std::nanf("");
  const auto y = product(m.weight, x, 1);
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i / 18 == 1) << i;
}

INSTANTIATE_TEST_SUITE_P(All, CudaMatmul, testing::ValuesIn(kFormats), [](const auto& info) { return std::string(name(info.param)); });

TEST(CudaMatmulJobs, AddThenBiasAtTheirStride) {
  const std::uint32_t cols = 64, n = 5, rows = 20, stride = 33;
  const StoredMatrix m = random_matrix(Format::q8_0, rows, cols, 1);
  const auto x = random_floats(std::size_t{n} * cols, 3), bias = random_floats(rows, 4);
  const auto without = product(m.weight, x, 1);
  Machine machine(7);
  std::vector<float> y(n * stride, 0.5f);
  launch_matmul({m.weight, y.data() + 2, stride, true, bias.data()}, x.data(), n, machine.stream());
  for (std::size_t i = 0; i < y.size() - 2; ++i) {
    const std::size_t r = i % stride;
    ASSERT_EQ(y[i + 2], r < rows ? (0.5f + without[i / stride * rows + r]) + bias[r] : 0.5f);
  }
}

}  // namespace
}  // namespace troupe::kernels
