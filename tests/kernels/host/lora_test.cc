#include "kernels/host/lora.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/host/host_kernels.h"
#include "tests/kernels/host/lora_testing.h"

namespace troupe::kernels {
namespace {

constexpr std::uint32_t kMaxRank = 16;

// The order of kernels.h, one element at a time.
std::vector<float> reference(const Adapters& m, std::uint32_t slot, const float* x, const float* y) {
  const LoraWeight& w = m.slots[slot];
  std::vector<float> out(y, y + m.rows), s(w.rank);
  for (std::uint32_t k = 0; k < w.rank; ++k) {
    float lanes[16] = {};
    for (std::uint32_t i = 0; i < m.cols; ++i) lanes[i % 16] += w.a[std::size_t{k} * m.cols + i] * x[i];
    for (int step : {8, 4, 2, 1}) {
      for (int i = 0; i < step; ++i) lanes[i] += lanes[i + step];
    }
    s[k] = lanes[0] * w.scale;
  }
  for (std::uint32_t r = 0; r < m.rows && w.rank != 0; ++r) {
    float sum = 0.0f;
    for (std::uint32_t k = 0; k < w.rank; ++k) sum += s[k] * w.b[std::size_t{k} * m.rows + r];
    out[r] += sum;
  }
  return out;
}

void run(const Adapters& m, const std::vector<LoraRun>& runs, const std::vector<float>& x, std::vector<float>& y, Target target,
         unsigned threads) {
  ThreadPool pool(threads);
  Lora lora(target, kMaxRank, pool);
  lora.run(std::vector{LoraJob{m.slots.data(), m.rows, y.data(), m.rows}}, runs, x.data(), m.cols);
}

TEST(Lora, EveryTokenIsTheReferencesBits) {
  for (const auto& [rows, cols] : {std::pair{64u, 32u}, {160u, 64u}, {37u, 96u}, {7u, 32u}}) {
    const Adapters m(rows, cols, {0, 4, 16, 1, 0});
    const std::uint32_t n = 23;
    const auto x = random_floats(std::size_t{n} * cols, 5), before = random_floats(std::size_t{n} * rows, 6);
    // Tokens 0, 1 and 12 have no adapter; slot 4 adapts nothing here.
    const std::vector<LoraRun> runs{{2, 9, 1}, {11, 1, 3}, {13, 6, 2}, {19, 2, 4}, {21, 2, 1}};
    for (Target target : targets()) {
      for (unsigned threads : {1u, 2u, 3u}) {
        auto y = before;
        run(m, runs, x, y, target, threads);
        for (std::uint32_t t = 0; t < n; ++t) {
          const auto want = reference(m, slot_of(runs, t), &x[std::size_t{t} * cols], &before[std::size_t{t} * rows]);
          EXPECT_TRUE(same_bits(want, {y.begin() + t * rows, y.begin() + (t + 1) * rows}))
              << name(target) << " " << threads << " token " << t;
        }
      }
    }
  }
}

TEST(Lora, BitsDependOnTheRowAlone) {
  const Adapters m(80, 64, {0, 8, 3});
  const std::uint32_t n = 12;
  const auto x = random_floats(std::size_t{n} * 64, 5), before = random_floats(std::size_t{n} * 80, 6);
  auto all = before;
  run(m, {{0, 7, 1}, {7, 5, 2}}, x, all, Target::portable, 1);
  for (Target target : targets()) {
    for (std::uint32_t t = 0; t < n; ++t) {  // each token alone, at row 0
      std::vector<float> y(before.begin() + t * 80, before.begin() + (t + 1) * 80);
      run(m, {{0, 1, t < 7 ? 1u : 2u}}, {x.begin() + t * 64, x.begin() + (t + 1) * 64}, y, target, 1);
      EXPECT_TRUE(same_bits(y, {all.begin() + t * 80, all.begin() + (t + 1) * 80})) << name(target) << " token " << t;
    }
  }
}

TEST(Lora, JobsShareTheirInputAndKeepToTheirColumns) {
  const Adapters p(32, 64, {0, 4}), q(20, 64, {0, 2});
  const std::uint32_t n = 5, stride = 60;
  const auto x = random_floats(std::size_t{n} * 64, 5), before = random_floats(std::size_t{n} * stride, 6);
  for (unsigned threads : {1u, 2u}) {
    const auto k = make_host_kernels({.threads = threads, .max_rows = n, .max_cols = 64, .max_lora_rank = kMaxRank});
    auto y = before;
    k->lora(std::vector{LoraJob{p.slots.data(), 32, y.data(), stride}, LoraJob{q.slots.data(), 20, y.data() + 32, stride}},
            std::vector{LoraRun{1, 4, 1}}, x.data(), 64);
    for (std::uint32_t t = 0; t < n; ++t) {
      auto want = std::vector<float>(before.begin() + t * stride, before.begin() + (t + 1) * stride);
      if (t > 0) {
        const auto a = reference(p, 1, &x[std::size_t{t} * 64], want.data()),
                   b = reference(q, 1, &x[std::size_t{t} * 64], want.data() + 32);
        std::copy(a.begin(), a.end(), want.begin());
        std::copy(b.begin(), b.end(), want.begin() + 32);
      }
      EXPECT_TRUE(same_bits(want, {y.begin() + t * stride, y.begin() + (t + 1) * stride})) << t;
    }
  }
}

TEST(Lora, NanStaysInItsToken) {
  const Adapters m(48, 32, {0, 4});
  auto x = random_floats(std::size_t{6} * 32, 3);
  x[2 * 32 + 5] = std::nanf("");
  for (Target target : targets()) {
    std::vector<float> y(std::size_t{6} * 48, 1.0f);
    run(m, {{0, 6, 1}}, x, y, target, 1);
    for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i / 48 == 2) << i;
  }
}

}  // namespace
}  // namespace troupe::kernels
