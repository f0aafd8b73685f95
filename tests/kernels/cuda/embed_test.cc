#include "kernels/cuda/families.h"
#include "kernels/host/host_kernels.h"
#include "tests/kernels/cuda/cuda_testing.h"

namespace troupe::kernels {
namespace {

TEST(CudaEmbed, TheSameBitsAsTheHostInEveryFormat) {
  for (Format format : {Format::f32, Format::f16, Format::bf16, Format::q8_0, Format::q4_0, Format::q4_1, Format::q4_k, Format::q6_k}) {
    for (std::uint32_t cols : {32u, 160u, 512u, 4096u}) {
      if (!fits(format, cols)) continue;
      const StoredMatrix m = random_matrix(format, 9, cols, cols);
      const std::vector<StepToken> tokens{{3, 0, 0}, {0, 0, 1}, {8, 1, 7}, {3, kNone, 2}};
      std::vector<float> want(tokens.size() * cols), got(want.size());
      make_host_kernels({.max_cols = cols})->embed(m.weight, tokens.data(), 4, want.data());
      for (std::uint64_t seed : kSeeds) {
        Machine machine(seed);
        launch_embed(m.weight, tokens.data(), 4, got.data(), machine.stream());
        EXPECT_TRUE(same_bits(got, want)) << name(format) << " " << cols;
      }
    }
  }
}

// Every half, the subnormal ones and infinities too.
TEST(CudaEmbed, EveryHalf) {
  std::vector<std::uint16_t> halves(65536);
  for (std::uint32_t i = 0; i < 65536; ++i) halves[i] = static_cast<std::uint16_t>(i);
  std::vector<float> got(65536);
  const std::vector<StepToken> token{{0, 0, 0}};
  Machine machine(1);
  launch_embed({halves.data(), Format::f16, 1, 65536}, token.data(), 1, got.data(), machine.stream());
  for (std::uint32_t i = 0; i < 65536; ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(got[i]), std::bit_cast<std::uint32_t>(half_to_float(halves[i]))) << i;
  }
}

TEST(CudaGatherOutputs, TheLastTokenOfEachRowThatChooses) {
  const std::uint32_t width = 200, n_rows = 300;
  std::vector<StepRow> rows(n_rows);
  std::mt19937 rng(1);
  std::uint32_t tokens = 0, outputs = 0;
  for (StepRow& r : rows) {
    r.n_tokens = 1 + rng() % 5;
    r.output = rng() % 3 == 0 ? kNone : outputs++;
    tokens += r.n_tokens;
  }
  const auto x = random_floats(std::size_t{tokens} * width, 1);
  std::vector<float> want(std::size_t{outputs} * width), got(want.size(), -1.0f);
  make_host_kernels({})->gather_outputs(rows.data(), n_rows, x.data(), width, want.data());
  Machine machine(2);
  launch_gather_outputs(rows.data(), n_rows, x.data(), width, got.data(), machine.stream());
  EXPECT_TRUE(same_bits(got, want));
}

}  // namespace
}  // namespace troupe::kernels
