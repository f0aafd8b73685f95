// The kernels that are glue alone: embedding gather and the gather of outputs.
#include "kernels/host/host_kernels.h"

#include <gtest/gtest.h>

#include "kernels/host/rows.h"
#include "tests/kernels/host/kernel_testing.h"

namespace troupe::kernels {
namespace {

TEST(Embed, IsTheRowDequantized) {
  for (Format format : {Format::f32, Format::f16, Format::bf16, Format::q8_0, Format::q4_0, Format::q4_1, Format::q4_k, Format::q6_k}) {
    const std::uint32_t cols = fits(format, 64) ? 64 : 256;
    const StoredMatrix m = random_matrix(format, 6, cols, 1);
    const std::vector<StepToken> tokens{{5, 0, 0}, {0, 0, 1}, {5, 1, 0}, {3, 1, 1}, {1, 1, 2}};
    std::vector<float> portable;
    for (Target target : targets()) {
      for (unsigned threads : {1u, 2u}) {
        const auto k = make_host_kernels({.threads = threads, .target = target, .max_rows = 8, .max_cols = cols});
        std::vector<float> x(std::size_t{5} * cols);
        k->embed(m.weight, tokens.data(), 5, x.data());
        for (std::size_t t = 0; t < 5; ++t) {
          for (std::size_t i = 0; i < cols; ++i) ASSERT_NEAR(x[t * cols + i], m.values[tokens[t].id * cols + i], 1e-6);
        }
        if (portable.empty()) portable = x;
        EXPECT_TRUE(same_bits(x, portable)) << name(format) << " " << name(target);
      }
    }
  }
}

// A block's bytes in every layer go out and into another block, and no other byte changes.
TEST(Blocks, AreCopiedWholeAndNothingElseIs) {
  for (const bool exact : {false, true}) {
    const auto k = make_host_kernels({.exact = exact, .block_size = 5});
    KvCache kv{nullptr, 3, 7, 5, 2, 24};
    std::vector<std::uint8_t> data(k->kv_bytes(kv));
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::uint8_t>(i * 37 + i / 251);
    kv.data = data.data();
    const std::size_t bytes = k->kv_block_bytes(kv);
    ASSERT_EQ(bytes * kv.n_blocks, data.size());
    std::vector<std::uint8_t> memory(bytes);
    const auto before = data;
    k->read_block(kv, 6, memory.data());
    EXPECT_EQ(data, before);
    k->write_block(kv, 2, memory.data());
    const std::size_t layer = data.size() / kv.n_layers, block = layer / kv.n_blocks;
    for (std::size_t i = 0; i < data.size(); ++i) {
      const bool written = i % layer / block == 2;
      ASSERT_EQ(data[i], written ? before[i + 4 * block] : before[i]) << i;
    }
  }
}

TEST(NormHeads, IsTheNormOfEachHeadInPlace) {
  std::vector<float> portable;
  for (Target target : targets()) {
    const unsigned threads = target == best_target() ? 2 : 1;
    const auto k = make_host_kernels({.threads = threads, .target = target, .max_rows = 8, .max_cols = 64});
    constexpr std::size_t kRows = 5, kHeads = 3, kWidth = 24, kStride = 80;
    const auto before = random_floats(kRows * kStride, 1), gain = random_floats(kWidth, 2);
    auto x = before;
    k->norm_heads(x.data(), kStride, gain.data(), kRows, kHeads, kWidth, 1e-6f);
    for (std::size_t r = 0; r < kRows; ++r) {
      for (std::size_t h = 0; h < kHeads; ++h) {
        std::vector<float> want(kWidth);
        k->rms_norm(&before[r * kStride + h * kWidth], gain.data(), want.data(), 1, kWidth, 1e-6f);
        const auto* head = &x[r * kStride + h * kWidth];
        EXPECT_TRUE(same_bits(want, {head, head + kWidth})) << r << " " << h;
      }
      for (std::size_t i = kHeads * kWidth; i < kStride; ++i) EXPECT_EQ(x[r * kStride + i], before[r * kStride + i]);
    }
    if (portable.empty()) portable = x;
    EXPECT_TRUE(same_bits(x, portable)) << name(target);
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
