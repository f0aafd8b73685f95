// Products by cuBLASLt, with a library of tests in its place: layouts, residuals, strides and biases, what goes to it and what
// does not, and what is said where it is not to be had.
#include "kernels/cuda/cublaslt.h"

#include <cstring>

#include "kernels/cuda/cuda_kernels.h"
#include "tests/fake_cublaslt/fixture.h"
#include "tests/kernels/cuda/cuda_testing.h"
#include "tests/simt/simt.h"

namespace troupe::kernels {
namespace {

struct alignas(256) Line {
  std::byte bytes[256];
};

class CublasLtTest : public testing::Test {
 protected:
  CublasLtTest() : workspace_(kCublasLtWorkspace / sizeof(Line)), rounded_(64 * 512) {
    opened = open_cublaslt(test::kFakeCublasLt);
    EXPECT_NE(opened.library, nullptr) << opened.why;
    opened.library->use_workspace(workspace_.data());
    options.stream = &machine;
    options.cublaslt = opened.library.get();
    options.rounded = rounded_.data();
  }
  void TearDown() override { opened.library.reset(); }

  test::FakeCublasLt fake;
  simt::Machine machine{1};
  OpenedCublasLt opened;
  CudaKernelsOptions options;

 private:
  std::vector<Line> workspace_;
  std::vector<std::uint16_t> rounded_;
};

// Every number is near the sum in double over operands in BF16; what is beside the matrix is left alone.
TEST_F(CublasLtTest, MakesTheProduct) {
  const auto kernels = make_cuda_kernels(options);
  for (const std::uint32_t n : {1u, 3u, 16u, 33u}) {
    for (const auto& [rows, cols] : {std::pair{75u, 96u}, std::pair{8u, 512u}, std::pair{130u, 32u}}) {
      for (const bool add : {false, true}) {
        const StoredMatrix w = random_matrix(Format::bf16, rows, cols, rows + n), v = random_matrix(Format::bf16, 5, cols, n);
        const auto x = random_floats(std::size_t{n} * cols, 2), bias = random_floats(rows, 3);
        const std::size_t stride = rows + 9;
        const auto before = random_floats(n * stride, 4);
        std::vector<float> y = before;
        // Two products of one x, side by side, as q, k and v are: the second begins at an odd place.
        kernels->matmul(std::array{MatmulJob{w.weight, y.data(), stride, add, bias.data()},
                                   MatmulJob{v.weight, y.data() + rows + 1, stride, add, nullptr}},
                        x.data(), n, cols);
        EXPECT_EQ(opened.library->take_failure(), "");
        const auto check = [&](const StoredMatrix& m, std::uint32_t t, std::uint32_t r, std::uint32_t at, double extra) {
          double want = (add ? before[t * stride + at] : 0.0) + extra, size = std::fabs(want);
          for (std::uint32_t i = 0; i < cols; ++i) {
            const double term = rounded_bf16(m.values[std::size_t{r} * cols + i]) * rounded_bf16(x[std::size_t{t} * cols + i]);
            want += term;
            size += std::fabs(term);
          }
          ASSERT_NEAR(y[t * stride + at], want, size * (cols + 2) * kF32Unit) << n << " " << r << " " << t;
        };
        for (std::uint32_t t = 0; t < n; ++t) {
          for (std::uint32_t r = 0; r < rows; ++r) check(w, t, r, r, bias[r]);
          for (std::uint32_t r = 0; r < 5; ++r) check(v, t, r, rows + 1 + r, 0.0);
          for (const std::uint32_t at : {rows, rows + 6, rows + 8}) ASSERT_EQ(y[t * stride + at], before[t * stride + at]);
        }
      }
    }
  }
  EXPECT_EQ(fake.made(), 4u * 3 * 2 * 2);
}

// The sums have another order than ours: this is not R1's arithmetic, and the test would notice if our kernel had run.
TEST_F(CublasLtTest, ItsBitsAreNotOurs) {
  const StoredMatrix w = random_matrix(Format::bf16, 64, 512, 1);
  const auto x = random_floats(512, 2);
  std::vector<float> ours(64), theirs(64);
  launch_matmul({w.weight, ours.data(), 64, false, nullptr}, x.data(), 1, &machine);
  make_cuda_kernels(options)->matmul(std::array{MatmulJob{w.weight, theirs.data(), 64}}, x.data(), 1, 512);
  EXPECT_NE(ours, theirs);
}

TEST_F(CublasLtTest, QuantizedWeightsStayWithOurKernels) {
  const auto x = random_floats(3 * 256, 2);
  for (const Format format : {Format::q8_0, Format::q4_1, Format::q4_k, Format::f16, Format::f32}) {
    const StoredMatrix w = random_matrix(format, 40, 256, 1);
    std::vector<float> ours(3 * 40), got(3 * 40);
    launch_matmul({w.weight, ours.data(), 40, false, nullptr}, x.data(), 3, &machine);
    make_cuda_kernels(options)->matmul(std::array{MatmulJob{w.weight, got.data(), 40}}, x.data(), 3, 256);
    EXPECT_EQ(got, ours) << name(format);
  }
  EXPECT_EQ(fake.made(), 0u);
}

TEST_F(CublasLtTest, AFailureIsSaidOnce) {
  const StoredMatrix w = random_matrix(Format::bf16, 8, 32, 1);
  const auto x = random_floats(32, 2);
  std::vector<float> y(8);
  const auto kernels = make_cuda_kernels(options);
  fake.fail(2, 13);
  for (int i = 0; i < 2; ++i) kernels->matmul(std::array{MatmulJob{w.weight, y.data(), 8}}, x.data(), 1, 32);
  EXPECT_EQ(opened.library->take_failure(), "cublasLtMatmul of cuBLASLt answered status 13");
  EXPECT_EQ(opened.library->take_failure(), "");
  opened.library->use_workspace(nullptr);
  kernels->matmul(std::array{MatmulJob{w.weight, y.data(), 8}}, x.data(), 1, 32);
  EXPECT_NE(opened.library->take_failure(), "") << "a plan that was made for a workspace";
  EXPECT_NE(fake.report(), nullptr);
  std::vector<float> more(8);
  kernels->matmul(std::array{MatmulJob{random_matrix(Format::bf16, 4, 64, 1).weight, more.data(), 4}}, random_floats(64, 2).data(), 1, 64);
  EXPECT_EQ(opened.library->take_failure(), "cuBLASLt has no algorithm for a product that is asked of it");
}

TEST(OpenCublasLt, SaysWhyNot) {
  const auto nowhere = open_cublaslt("/nowhere/libcublasLt.so");
  EXPECT_EQ(nowhere.library, nullptr);
  EXPECT_NE(nowhere.why.find("/nowhere/libcublasLt.so"), std::string::npos) << nowhere.why;
  const auto another = open_cublaslt("libm.so.6");
  EXPECT_EQ(another.library, nullptr);
  EXPECT_EQ(another.why, "libm.so.6 has no cublasLtCreate");
}

}  // namespace
}  // namespace troupe::kernels
