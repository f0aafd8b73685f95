#include "kernels/host/host_kernels.h"
#include "tests/kernels/cuda/cuda_testing.h"

namespace troupe::kernels {
namespace {

// Both exponentials are within 4e-7 (sampling_math.h; the host's within 2 units), the rest is two roundings each.
TEST(CudaSiluMul, IsNearTheHost) {
  const std::size_t n = 5000;
  auto gate = random_floats(n, 1, 20.0f);
  gate[7] = 0.0f, gate[8] = -200.0f, gate[9] = 200.0f, gate[10] = std::nanf("");
  const auto up = random_floats(n, 2);
  auto want = gate;
  make_host_kernels({})->silu_mul(want.data(), up.data(), n);
  for (std::uint64_t seed : kSeeds) {
    auto got = gate;
    Machine m(seed);
    launch_silu_mul(got.data(), up.data(), n, m.stream());
    for (std::size_t i = 0; i < n; ++i) {
      if (i == 10) {
        EXPECT_TRUE(std::isnan(got[i]));
      } else {
        ASSERT_NEAR(got[i], want[i], std::fabs(want[i]) * 1.2e-6 + 1e-36) << gate[i];
      }
    }
    for (std::size_t part : {1u, 255u, 256u, 257u}) {  // bits do not depend on n
      auto some = gate;
      launch_silu_mul(some.data(), up.data(), part, m.stream());
      EXPECT_EQ(std::memcmp(some.data(), got.data(), part * 4), 0);
      EXPECT_EQ(std::memcmp(some.data() + part, gate.data() + part, (n - part) * 4), 0);
    }
  }
}

}  // namespace
}  // namespace troupe::kernels
