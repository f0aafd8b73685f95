#include "kernels/host/lora.h"

#include <array>

#include "kernels/cuda/cuda_kernels.h"
#include "tests/kernels/cuda/cuda_testing.h"
#include "tests/kernels/host/lora_testing.h"

namespace troupe::kernels {
namespace {

constexpr std::uint32_t kMaxRank = 33;

// y with the adapters' part; scratch is NaN before.
std::vector<float> adapted(const Adapters& m, const std::vector<LoraRun>& runs, const std::vector<float>& x, std::vector<float> y,
                           std::uint64_t seed) {
  Machine machine(seed);
  std::vector<float> shrunk(lora_scratch_floats(static_cast<std::uint32_t>(x.size() / m.cols), kMaxRank), std::nanf(""));
  launch_lora(std::vector{LoraJob{m.slots.data(), m.rows, y.data(), m.rows}}, runs, x.data(), m.cols, kMaxRank, shrunk.data(),
              machine.stream());
  return y;
}

// Against the sums in double. All is F32: of n terms each rounding of a sum, a product or the scale is 2^-24 of what is there, at
// most n + 2 of them; the shrink's errors then weigh |B|. The host's kernel keeps to the same bound.
TEST(CudaLora, IsNearTheHost) {
  for (const auto& [rows, cols] : {std::pair{64u, 32u}, {300u, 96u}, {37u, 576u}}) {
    const Adapters m(rows, cols, {0, 4, 16, 1, 0, 33, 5});
    const std::uint32_t n = 27;
    const auto x = random_floats(std::size_t{n} * cols, 5), before = random_floats(std::size_t{n} * rows, 6);
    // Tokens 0, 1 and 12 have no adapter; slot 4 adapts nothing here.
    const std::vector<LoraRun> runs{{2, 9, 1}, {11, 1, 3}, {13, 6, 2}, {19, 2, 4}, {21, 1, 5}, {22, 3, 6}, {25, 2, 1}};
    const auto got = adapted(m, runs, x, before, 1);
    for (std::uint64_t seed : kSeeds) EXPECT_TRUE(same_bits(adapted(m, runs, x, before, seed), got)) << seed;
    auto host = before;
    ThreadPool pool(1);
    Lora(best_target(), kMaxRank, pool).run(std::vector{LoraJob{m.slots.data(), rows, host.data(), rows}}, runs, x.data(), cols);
    for (std::uint32_t t = 0; t < n; ++t) {
      const LoraWeight& w = m.slots[slot_of(runs, t)];
      for (std::uint32_t r = 0; r < rows; ++r) {
        const std::size_t at = std::size_t{t} * rows + r;
        if (w.rank == 0) {
          ASSERT_EQ(got[at], before[at]);
          continue;
        }
        double sum = 0.0, size = 0.0;
        for (std::uint32_t k = 0; k < w.rank; ++k) {
          double s = 0.0, s_size = 0.0;
          for (std::uint32_t i = 0; i < cols; ++i) {
            const double term = double{w.a[std::size_t{k} * cols + i]} * x[std::size_t{t} * cols + i];
            s += term, s_size += std::fabs(term);
          }
          const double b = w.b[std::size_t{k} * rows + r];
          sum += w.scale * s * b;
          size += w.scale * s_size * std::fabs(b);
        }
        const double bound = ((cols + w.rank + 4) * size + std::fabs(before[at] + sum)) * 1.01 * kF32Unit;
        ASSERT_NEAR(got[at], before[at] + sum, bound) << t << " " << r;
        ASSERT_NEAR(host[at], before[at] + sum, bound) << t << " " << r;
        ASSERT_NEAR(got[at], host[at], 2 * bound) << t << " " << r;
      }
    }
  }
}

// R1, for every rank: a token alone or in a run of any length, which is to say prefilled or decoded; and beside whom.
TEST(CudaLora, BitsDependOnTheRowAlone) {
  const std::uint32_t cols = 160, rows = 75, n = 14;
  const auto x = random_floats(std::size_t{n} * cols, 5), before = random_floats(std::size_t{n} * rows, 6);
  for (std::uint32_t rank = 1; rank <= kMaxRank; ++rank) {
    const Adapters m(rows, cols, {0, rank, kMaxRank + 1 - rank});
    const auto all = adapted(m, {{0, n, 1}}, x, before, 1);
    const auto other = adapted(m, {{0, n, 2}}, x, before, 1);
    ASSERT_FALSE(same_bits(all, other));
    for (std::uint32_t t = 0; t < n; ++t) {
      const auto y = adapted(m, {{0, 1, 1}}, piece_of(x, t * cols, (t + 1) * cols), piece_of(before, t * rows, (t + 1) * rows), rank + t);
      ASSERT_TRUE(same_bits(y, piece_of(all, t * rows, (t + 1) * rows))) << rank << " token " << t;
    }
    const std::uint32_t a = 1 + rank % 6, b = 8 + rank % 5;  // [0, a): the base model; [a, b): slot 1; then slot 2, but the last
    const auto mixed = adapted(m, {{a, b - a, 1}, {b, n - 1 - b, 2}}, x, before, rank);
    for (std::uint32_t t = 0; t < n; ++t) {
      const auto& want = t < a || t == n - 1 ? before : t < b ? all : other;
      ASSERT_TRUE(same_bits(piece_of(mixed, t * rows, (t + 1) * rows), piece_of(want, t * rows, (t + 1) * rows))) << rank << " " << t;
    }
  }
}

// A step of decode rows only, each a run of its own: more than a launch takes.
TEST(CudaLora, ThreeHundredRuns) {
  const std::uint32_t cols = 32, rows = 20, n = 300;
  const Adapters m(rows, cols, {0, 4, 1, 7});
  const auto x = random_floats(std::size_t{n} * cols, 5), before = random_floats(std::size_t{n} * rows, 6);
  std::vector<LoraRun> runs;
  for (std::uint32_t t = 0; t < n; ++t) {
    if (t % 5 != 0) runs.push_back({t, 1, 1 + t % 3});
  }
  const auto got = adapted(m, runs, x, before, 1);
  std::vector<std::vector<float>> of_slot{before};
  for (std::uint32_t slot : {1u, 2u, 3u}) of_slot.push_back(adapted(m, {{0, n, slot}}, x, before, 2));
  for (std::uint32_t t = 0; t < n; ++t) {
    ASSERT_TRUE(same_bits(piece_of(got, t * rows, (t + 1) * rows), piece_of(of_slot[slot_of(runs, t)], t * rows, (t + 1) * rows))) << t;
  }
}

TEST(CudaLora, JobsShareTheirInputAndKeepToTheirColumns) {
  const std::uint32_t cols = 64, n = 5, stride = 100, tokens = 8;
  const Adapters p(32, cols, {0, 4}), q(20, cols, {0, 2}), none(17, cols, {0, 0}), r(1, cols, {0, 33});
  const std::array of{&p, &q, &none, &r};  // more than a launch takes
  const auto x = random_floats(std::size_t{n} * cols, 5);
  auto before = random_floats(std::size_t{n} * stride, 6);
  for (std::uint32_t t = 0; t < n; ++t) before[t * stride + 55] = -0.0f;  // of the third, which is left alone: also the sign of a zero
  Machine machine(3);
  std::vector<float> shrunk(lora_scratch_floats(tokens, kMaxRank), std::nanf(""));
  const auto k = make_cuda_kernels({.stream = machine.native(), .max_lora_rank = kMaxRank, .lora_shrunk = shrunk.data()});
  auto y = before;
  std::vector<LoraJob> jobs;
  std::uint32_t begin = 0;
  for (const Adapters* m : of) {
    jobs.push_back({m->slots.data(), m->rows, y.data() + begin, stride});
    begin += m->rows;
  }
  k->lora(jobs, std::vector{LoraRun{1, 4, 1}}, x.data(), cols);
  machine.wait();
  auto want = before;
  begin = 0;
  for (const Adapters* m : of) {
    std::vector<float> part;
    for (std::uint32_t t = 0; t < n; ++t) {
      for (std::uint32_t i = 0; i < m->rows; ++i) part.push_back(before[t * stride + begin + i]);
    }
    part = adapted(*m, {{1, 4, 1}}, x, part, 4);
    for (std::uint32_t t = 0; t < n; ++t) std::copy_n(part.begin() + t * m->rows, m->rows, want.begin() + t * stride + begin);
    begin += m->rows;
  }
  EXPECT_TRUE(same_bits(y, want));
  EXPECT_FALSE(same_bits(y, before));
}

TEST(CudaLora, NoRunsCostNoLaunch) {
  const Adapters m(20, 32, {0, 4});
  Machine machine(1);
  std::vector<float> y(20, 1.0f), x(32, 1.0f), shrunk(lora_scratch_floats(1, 4));
  const std::vector jobs{LoraJob{m.slots.data(), 20, y.data(), 20}};
  launch_lora(jobs, {}, x.data(), 32, 4, shrunk.data(), machine.stream());
  launch_lora(jobs, std::vector{LoraRun{0, 0, 1}}, x.data(), 32, 4, shrunk.data(), machine.stream());
  EXPECT_EQ(machine.launches().value_or(0), 0u);
  launch_lora(jobs, std::vector{LoraRun{0, 1, 1}}, x.data(), 32, 4, shrunk.data(), machine.stream());
  EXPECT_EQ(machine.launches().value_or(2), 2u);
}

TEST(CudaLora, NanStaysInItsToken) {
  const Adapters m(48, 32, {0, 4});
  auto x = random_floats(std::size_t{6} * 32, 3);
  x[2 * 32 + 5] = std::nanf("");
  const auto y = adapted(m, {{0, 6, 1}}, x, std::vector<float>(std::size_t{6} * 48, 1.0f), 1);
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i / 48 == 2) << i;
}

}  // namespace
}  // namespace troupe::kernels
