#include "kernels/host/host_kernels.h"
#include "tests/kernels/cuda/cuda_testing.h"

namespace troupe::kernels {
namespace {

constexpr float kEps = 1e-5f;

// The sum of squares has no cancellation: its relative error is at most a unit per addition in a chain (width / threads, and
// the tree), halved by the root; then four more operations. The host's bound is the same with 16 lanes.
double tolerance(std::uint32_t width) { return (0.5 * (width / 16.0 + 10.0) + 5.0) * kF32Unit * 2.0; }

TEST(CudaRmsNorm, IsNearTheHost) {
  const auto host = make_host_kernels({});
  for (std::uint32_t width : {1u, 32u, 576u, 1000u, 4096u}) {
    const std::uint32_t n = 5;
    const auto x = random_floats(std::size_t{n} * width, width, 3.0f), gain = random_floats(width, 2);
    std::vector<float> want(x.size()), got(x.size());
    host->rms_norm(x.data(), gain.data(), want.data(), n, width, kEps);
    for (std::uint64_t seed : kSeeds) {
      Machine m(seed);
      launch_rms_norm(x.data(), gain.data(), got.data(), n, width, kEps, m.stream());
      for (std::size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(got[i], want[i], std::fabs(want[i]) * tolerance(width)) << width << " " << i;
    }
  }
}

TEST(CudaRmsNorm, BitsDependOnTheRowAloneAndMayBeInPlace) {
  const std::uint32_t width = 300, most = 64;
  const auto x = random_floats(std::size_t{most} * width, 1), gain = random_floats(width, 2);
  std::vector<float> all(x.size());
  Machine m(1);
  launch_rms_norm(x.data(), gain.data(), all.data(), most, width, kEps, m.stream());
  for (std::uint32_t n = 1; n <= most; ++n) {
    auto y = piece_of(x, std::size_t{most - n} * width, x.size());
    launch_rms_norm(y.data(), gain.data(), y.data(), n, width, kEps, m.stream());
    ASSERT_TRUE(same_bits(y, piece_of(all, std::size_t{most - n} * width, x.size()))) << n;
  }
}

TEST(CudaNormHeads, EachHeadInPlaceNothingElse) {
  const auto host = make_host_kernels({});
  for (std::uint32_t width : {16u, 64u, 128u, 256u}) {
    const std::uint32_t n = 3, heads = 5;
    const std::size_t stride = (heads + 2) * width;
    const auto gain = random_floats(width, 2);
    auto want = random_floats(n * stride, width);
    const auto before = want;
    auto got = want;
    host->norm_heads(want.data(), stride, gain.data(), n, heads, width, kEps);
    Machine m(3);
    launch_norm_heads(got.data(), stride, gain.data(), n, heads, width, kEps, m.stream());
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (i % stride >= heads * width) {
        ASSERT_EQ(got[i], before[i]);
      } else {
        ASSERT_NEAR(got[i], want[i], std::fabs(want[i]) * tolerance(width));
      }
    }
  }
}

}  // namespace
}  // namespace troupe::kernels
