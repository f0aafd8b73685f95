// RoPE with the write into the paged cache, and attention over it, as HostKernels calls them.
#include "kernels/host/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <memory>
#include <numeric>

#include "kernels/host/host_kernels.h"
#include "kernels/host/rope.h"
#include "tests/kernels/host/kernel_testing.h"

namespace troupe::kernels {
namespace {

struct Shape {
  std::uint32_t heads, kv_heads, head_dim, rotated, block_size;
  std::uint32_t window = 0;
  bool halves = false;
};

// One sequence of n tokens in slot 1, its blocks scattered over the cache. Poison is what unused elements hold.
struct Sequence {
  Sequence(const Shape& s, std::uint32_t n, bool exact, Target target, unsigned threads, std::uint64_t block_seed)
      : shape(s), n(n), exact(exact), stride((s.heads + 2 * s.kv_heads) * s.head_dim) {
    const std::uint32_t blocks = (n + s.block_size - 1) / s.block_size;
    HostKernelsOptions o;
    o.exact = exact, o.threads = threads, o.target = target, o.max_rows = n, o.max_context = n, o.max_group = s.heads / s.kv_heads;
    o.block_size = s.block_size;
    kernels = make_host_kernels(o);
    kv = {nullptr, 2, blocks + 3, s.block_size, s.kv_heads, s.head_dim};
    cache.assign(kernels->kv_bytes(kv), 0xff);  // NaN in either format: what was never written must not be read
    zero_padding();
    kv.data = cache.data();
    table.assign(2 * blocks, 0);
    std::vector<std::uint32_t> order(blocks + 3);
    std::iota(order.begin(), order.end(), 1);
    std::shuffle(order.begin(), order.end(), std::mt19937_64(block_seed));
    std::copy_n(order.begin(), blocks, table.begin() + blocks);
    tables = {table.data(), 2, blocks};
    qkv = random_floats(std::size_t{n} * stride, 9);
    for (std::uint32_t i = 0; i < s.rotated / 2; ++i) inv_freq.push_back(std::pow(10000.0, -2.0 * i / s.rotated));
  }
  // The cache is zeroed at start, and the padding of v rows (head_dim rounded up to 16) stays so.
  void zero_padding() {
    const KvLayout l(kv);
    if (l.v_stride == shape.head_dim) return;
    std::fill(cache.begin(), cache.end(), 0);
  }
  // Tokens [begin, end) in one call, into out.
  void step(std::uint32_t begin, std::uint32_t end, std::vector<float>& out) {
    std::vector<StepToken> tokens;
    for (std::uint32_t t = begin; t < end; ++t) tokens.push_back({0, 1, t});
    const auto count = end - begin;
    std::vector<float> angles(std::size_t{count} * shape.rotated), work(qkv.begin() + begin * stride, qkv.begin() + end * stride);
    kernels->rope_angles(tokens.data(), count, inv_freq.data(), shape.rotated / 2, angles.data());
    const float* k = work.data() + shape.heads * shape.head_dim;
    kernels->rope_store({tokens.data(), count, 1, shape.heads, shape.rotated, work.data(), k, k + shape.kv_heads * shape.head_dim, stride,
                         angles.data(), shape.halves},
                        kv, tables);
    out.resize(std::size_t{n} * shape.heads * shape.head_dim);
    kernels->attention(
        {tokens.data(), count, 1, shape.heads, work.data(), stride, out.data() + std::size_t{begin} * shape.heads * shape.head_dim,
         1.0f / std::sqrt(static_cast<float>(shape.head_dim)), shape.window},
        kv, tables);
  }
  // In double, from the formulas, with keys and values rounded as the cache keeps them.
  std::vector<double> rotated_head(std::uint32_t t, std::uint32_t offset, bool stored) const {
    std::vector<double> v(shape.head_dim);
    for (std::uint32_t i = 0; i < shape.head_dim; ++i) v[i] = qkv[t * stride + offset + i];
    for (std::uint32_t i = 0; i < shape.rotated / 2; ++i) {
      double& a = v[shape.halves ? i : 2 * i];
      double& b = v[shape.halves ? i + shape.rotated / 2 : 2 * i + 1];
      const std::complex<double> turned = std::complex<double>(a, b) * std::polar(1.0, t * inv_freq[i]);
      a = turned.real();
      b = turned.imag();
    }
    if (stored && !exact) {
      for (double& x : v) x = half_to_float(float_to_half(static_cast<float>(x)));
    }
    return v;
  }
  double reference(std::uint32_t t, std::uint32_t head, std::uint32_t element) const {
    const std::uint32_t kv_head = head / (shape.heads / shape.kv_heads);
    const auto q = rotated_head(t, head * shape.head_dim, false);
    std::vector<double> score(t + 1);
    double top = -1e300, sum = 0.0, out = 0.0;
    const std::uint32_t first = shape.window != 0 && t >= shape.window ? t - shape.window + 1 : 0;
    for (std::uint32_t p = first; p <= t; ++p) {
      const auto k = rotated_head(p, (shape.heads + kv_head) * shape.head_dim, true);
      for (std::uint32_t i = 0; i < shape.head_dim; ++i) score[p] += q[i] * k[i];
      score[p] /= std::sqrt(static_cast<double>(shape.head_dim));
      top = std::max(top, score[p]);
    }
    for (std::uint32_t p = first; p <= t; ++p) {
      const double e = std::exp(score[p] - top);
      const float v = qkv[p * stride + (shape.heads + shape.kv_heads + kv_head) * shape.head_dim + element];
      sum += e;
      out += e * (exact ? v : half_to_float(float_to_half(v)));
    }
    return out / sum;
  }

  Shape shape;
  std::uint32_t n;
  bool exact;
  std::size_t stride;
  std::unique_ptr<Kernels> kernels;
  KvCache kv;
  std::vector<std::uint8_t> cache;
  std::vector<std::uint32_t> table;
  BlockTables tables;
  std::vector<float> qkv;
  std::vector<double> inv_freq;
};

const Shape kShapes[] = {{4, 2, 16, 16, 16},   {9, 3, 64, 64, 16},         {5, 1, 32, 16, 16},
                         {2, 2, 24, 8, 16},    {4, 4, 16, 16, 8},          {6, 3, 16, 16, 5},
                         {2, 1, 16, 16, 32},   {4, 2, 16, 16, 16, 20},     {6, 1, 32, 24, 16, 16, true},
                         {4, 2, 16, 16, 5, 1}, {8, 1, 48, 48, 16, 0, true}};

class AttentionTest : public testing::TestWithParam<std::tuple<Shape, bool>> {};

TEST_P(AttentionTest, IsNearTheFormula) {
  const auto [shape, exact] = GetParam();
  for (Target target : targets()) {
    Sequence s(shape, 50, exact, target, 1, 1);
    std::vector<float> out;
    s.step(0, 50, out);
    for (std::uint32_t t : {0u, 1u, 15u, 16u, 31u, 49u}) {
      for (std::uint32_t h = 0; h < shape.heads; ++h) {
        for (std::uint32_t i = 0; i < shape.head_dim; i += 5) {
          // In the fast mode a key or a value on a rounding boundary may fall either way: 2^-11 of it.
          ASSERT_NEAR(out[(t * shape.heads + h) * shape.head_dim + i], s.reference(t, h, i), exact ? 3e-6 : 2e-4)
              << t << " " << h << " " << i;
        }
      }
    }
  }
}

TEST_P(AttentionTest, BitsDependOnTheSequenceAlone) {
  const auto [shape, exact] = GetParam();
  Sequence whole(shape, 45, exact, Target::portable, 1, 1);
  std::vector<float> want, out;
  whole.step(0, 45, want);
  for (Target target : targets()) {
    for (unsigned threads : {1u, 2u}) {
      Sequence s(shape, 45, exact, target, threads, 7);  // other blocks, too
      for (std::uint32_t t = 0; t < 45;) {
        const std::uint32_t end = t < 17 ? 17 : t < 20 ? t + 1 : std::min(45u, t + 9);
        s.step(t, end, out);
        t = end;
      }
      EXPECT_TRUE(same_bits(out, want)) << name(target) << " " << threads;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionTest, testing::Combine(testing::ValuesIn(kShapes), testing::Bool()), [](const auto& info) {
  const Shape& s = std::get<0>(info.param);
  return std::string("h") + std::to_string(s.heads) + "kv" + std::to_string(s.kv_heads) + "d" + std::to_string(s.head_dim) + "b" +
         std::to_string(s.block_size) + "w" + std::to_string(s.window) + (s.halves ? "_halves" : "") +
         (std::get<1>(info.param) ? "_exact" : "_fast");
});

// Blocks behind the window may have been given to another sequence.
TEST(Attention, BlocksBehindTheWindowAreNotRead) {
  for (const bool exact : {false, true}) {
    for (Target target : targets()) {
      Sequence s({4, 2, 16, 16, 16, 20}, 60, exact, target, 1, 1);
      std::vector<float> want, out;
      s.step(0, 60, want);
      s.step(0, 55, out);
      // Position 55 sees 36 to 55, 59 sees 40 to 59: blocks 0 and 1 are behind both.
      const std::size_t block = s.cache.size() / 2 / s.kv.n_blocks;
      for (std::uint32_t b : {0u, 1u}) {
        const std::uint32_t at = s.table[s.tables.blocks_per_slot + b] - 1;
        std::fill_n(s.cache.begin() + s.cache.size() / 2 + at * block, block, 0xff);
        s.table[s.tables.blocks_per_slot + b] = 0;
      }
      s.step(55, 60, out);
      EXPECT_TRUE(same_bits(out, want)) << name(target);
    }
  }
}

TEST(Attention, ATokenWithoutBlocksReadsAndWritesNothing) {
  Sequence s({2, 1, 16, 16, 16}, 20, true, best_target(), 1, 1);
  const auto before = s.cache;
  const StepToken token{0, kNone, 3};
  std::vector<float> work = s.qkv, angles(16), out(32, 5.0f);
  s.kernels->rope_angles(&token, 1, s.inv_freq.data(), 8, angles.data());
  s.kernels->rope_store({&token, 1, 0, 2, 16, work.data(), work.data() + 32, work.data() + 48, s.stride, angles.data()}, s.kv, s.tables);
  s.kernels->attention({&token, 1, 0, 2, work.data(), s.stride, out.data(), 1.0f}, s.kv, s.tables);
  EXPECT_EQ(s.cache, before);
  for (float v : out) EXPECT_EQ(v, 0.0f);
}

TEST(RopeAngles, AreRightFarOut) {
  const double inv_freq[] = {1.0, 0.001};
  float out[4];
  rope_angles(100000, inv_freq, 2, out);
  EXPECT_FLOAT_EQ(out[0], static_cast<float>(std::cos(100000.0)));
  EXPECT_FLOAT_EQ(out[3], static_cast<float>(std::sin(100.0)));
}

}  // namespace
}  // namespace troupe::kernels
