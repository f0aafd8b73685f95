// Negative controls: the very sources with their barriers taken out must be found wrong by the shuffled order of threads. With
// the barriers left in, the same calls are right for every seed.
#include <gtest/gtest.h>

#include "tests/simt/cuda_names.h"

namespace {

struct Dropped {
  bool block = false, warp = false;
};
Dropped dropped;

void block_barrier_or_not() {
  if (!dropped.block) __syncthreads();
}
void warp_barrier_or_not() {
  if (!dropped.warp) __syncwarp();
}

}  // namespace

#define __syncthreads block_barrier_or_not
#define __syncwarp warp_barrier_or_not
#include "kernels/cuda/argmax_feed.cu"
#include "kernels/cuda/attention_decode.cu"
#include "kernels/cuda/lora.cu"
#include "kernels/cuda/matmul.cu"
#include "kernels/cuda/rms_norm.cu"
#undef __syncthreads
#undef __syncwarp

#include "tests/kernels/host/lora_testing.h"

namespace troupe::kernels {
namespace {

constexpr std::uint64_t kRounds = 12;

// Runs `call(seed)`, which returns floats, with and without the barriers; says for how many seeds the answer was another.
template <class F>
std::size_t wrong(Dropped d, F&& call) {
  dropped = {};
  const std::vector<float> right = call(0);
  std::size_t n = 0;
  for (std::uint64_t seed = 1; seed <= kRounds; ++seed) {
    dropped = {};
    EXPECT_TRUE(same_bits(call(seed), right)) << seed;
    dropped = d;
    n += !same_bits(call(seed), right);
  }
  dropped = {};
  return n;
}

TEST(Controls, MatmulWithoutItsBarriers) {
  const StoredMatrix m = random_matrix(Format::q4_1, 64, 128, 1);
  const auto x = random_floats(8 * 128, 2);
  EXPECT_EQ(wrong({.block = true},
                  [&](std::uint64_t seed) {
                    simt::Machine machine(seed);
                    std::vector<float> y(8 * 64);
                    launch_matmul({m.weight, y.data(), 64, false, nullptr}, x.data(), 8, &machine);
                    return y;
                  }),
            kRounds);
}

TEST(Controls, ArgmaxWithoutItsBarriers) {
  std::vector<float> logits = random_floats(3000, 3);
  EXPECT_GE(wrong({.block = true},
                  [&](std::uint64_t seed) {
                    simt::Machine machine(seed);
                    std::vector<StepRow> rows(1);
                    rows[0].output = 0;
                    Cell cell{0, Status::ok, 1};
                    RowReadback readback;
                    launch_argmax_feed(rows.data(), 1, logits.data(), 3000, 1, &cell, &readback, nullptr, &machine, 256);
                    return std::vector<float>{static_cast<float>(cell.id), static_cast<float>(cell.status)};
                  }),
            1u);
}

TEST(Controls, RmsNormWithoutItsBarrier) {
  const auto x = random_floats(700, 4), gain = random_floats(700, 5);
  EXPECT_EQ(wrong({.block = true},
                  [&](std::uint64_t seed) {
                    simt::Machine machine(seed);
                    std::vector<float> y(700);
                    launch_rms_norm(x.data(), gain.data(), y.data(), 1, 700, 1e-5f, &machine);
                    return y;
                  }),
            kRounds);
}

TEST(Controls, LoraWithoutItsBarrier) {
  const Adapters m(32, 256, {0, 4});
  const auto x = random_floats(256, 2);
  EXPECT_GE(wrong({.block = true},
                  [&](std::uint64_t seed) {
                    simt::Machine machine(seed);
                    std::vector<float> y(32), shrunk(lora_scratch_floats(1, 4));
                    launch_lora(std::vector{LoraJob{m.slots.data(), 32, y.data(), 32}}, std::vector{LoraRun{0, 1, 1}}, x.data(), 256, 4,
                                shrunk.data(), &machine);
                    return y;
                  }),
            kRounds / 2);  // right by chance when the warp that sums ends last
}

TEST(Controls, AttentionWithoutEitherBarrier) {
  const std::uint32_t heads = 4, dim = 32, positions = 80;
  std::vector<std::uint32_t> cache(std::size_t{5} * 2 * 16 * dim / 2), table(5);
  for (std::size_t i = 0; i < cache.size(); ++i) cache[i] = bf16_pair(static_cast<float>(i % 13) / 7, static_cast<float>(i % 11) / 5 - 1);
  for (std::uint32_t i = 0; i < 5; ++i) table[i] = i + 1;
  const KvCache kv{cache.data(), 1, 5, 16, 1, dim};
  const auto q = random_floats(heads * dim, 6);
  const auto call = [&](std::uint64_t seed) {
    simt::Machine machine(seed);
    const StepToken token{0, 0, positions - 1};
    std::vector<float> out(heads * dim), partial(attention_partial_floats(1, heads, dim, positions));
    launch_attention_decode({&token, 1, 0, heads, q.data(), heads * dim, out.data(), 0.2f, 0}, kv, {table.data(), 1, 5}, positions,
                            partial.data(), &machine);
    return out;
  };
  EXPECT_EQ(wrong({.block = true}, call), kRounds);
  EXPECT_EQ(wrong({.warp = true}, call), kRounds);
}

}  // namespace
}  // namespace troupe::kernels
