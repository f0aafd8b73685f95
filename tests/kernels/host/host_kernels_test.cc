// The kernels that are glue alone: embedding gather and the gather of outputs.
#include "kernels/host/host_kernels.h"

#include <gtest/gtest.h>

#include "kernels/host/rows.h"
#include "tests/kernels/host/kernel_testing.h"

namespace troupe::kernels {
namespace {

TEST(Embed, IsTheRowDequantized) {
  for (Format format : {Format::f32, Format::q8_0, Format::q4_1}) {
    const StoredMatrix m = random_matrix(format, 6, 64, 1);
    const std::vector<StepToken> tokens{{5, 0, 0}, {0, 0, 1}, {5, 1, 0}, {3, 1, 1}, {1, 1, 2}};
    for (unsigned threads : {1u, 2u}) {
      const auto k = make_host_kernels({.threads = threads, .max_rows = 8, .max_cols = 64});
      std::vector<float> x(5 * 64);
      k->embed(m.weight, tokens.data(), 5, x.data());
      for (std::size_t t = 0; t < 5; ++t) {
        for (std::size_t i = 0; i < 64; ++i) ASSERT_NEAR(x[t * 64 + i], m.values[tokens[t].id * 64 + i], 1e-6);
      }
    }
  }
}

TEST(GatherOutputs, TakesTheLastTokenOfEachRowThatWantsOne) {
  const auto k = make_host_kernels({});
  std::vector<StepRow> rows(3);
  rows[0].n_tokens = 3, rows[0].output = 1;
  rows[1].n_tokens = 2;
  rows[2].n_tokens = 1, rows[2].output = 0;
  const std::vector<float> x{0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5};
  std::vector<float> out(4, -1.0f);
  k->gather_outputs(rows.data(), 3, x.data(), 2, out.data());
  EXPECT_EQ(out, (std::vector<float>{5, 5, 2, 2}));
}

TEST(Target, PortableIsAlwaysThere) {
  EXPECT_TRUE(supported(Target::portable));
  EXPECT_TRUE(supported(best_target()));
}

}  // namespace
}  // namespace troupe::kernels
