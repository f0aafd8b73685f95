#include <cstring>

#include "tests/kernels/cuda/attention_rig.h"

namespace troupe::kernels {
namespace {

const Shape kShapes[] = {{4, 2, 16, 16, 16},
                         {9, 3, 64, 64, 16},
                         {2, 2, 24, 8, 8},
                         {6, 3, 16, 16, 5},
                         {2, 1, 16, 16, 32},
                         {4, 2, 16, 16, 16, 20},
                         {12, 1, 32, 24, 16, 16, true},
                         {4, 2, 16, 16, 5, 1},
                         {2, 1, 96, 96, 16},
                         {2, 1, 256, 256, 16, 0, true}};

class CudaAttention : public testing::TestWithParam<Shape> {};

// In double from what the cache holds. Errors in F32: a score is off by at most (head_dim + 2) units of its magnitudes, a
// weight by e to twice that (its own and the sum's) and by what exp_float is off; sums over n positions add n units.
// Against the host's exact kernels: besides, a key is off by 2^-9 of itself, so a score by 2^-9 of its magnitudes, and a
// value by 2^-9.
TEST_P(CudaAttention, IsNearTheFormulaAndTheHost) {
  const Shape shape = GetParam();
  const std::uint32_t n = 70;
  for (Path path : {Path::decode, Path::prefill}) {
    Sequence s(shape, n, 3);
    const HostSequence host(s);
    s.step(0, n, path);
    for (std::uint32_t t : {0u, 1u, 31u, 32u, 47u, 69u}) {
      for (std::uint32_t h = 0; h < shape.heads; ++h) {
        const std::uint32_t kv_head = h / (shape.heads / shape.kv_heads);
        const std::uint32_t first = shape.window != 0 && t >= shape.window ? t - shape.window + 1 : 0;
        std::vector<double> score(t + 1, 0.0);
        double top = -1e300, sum = 0.0, largest = 0.0, most = 0.0;
        const auto element = [&](std::uint32_t p, std::uint32_t value, std::uint32_t i) {
          return static_cast<double>(std::bit_cast<float>(std::uint32_t{s.stored(p, kv_head, value, i)} << 16));
        };
        for (std::uint32_t p = first; p <= t; ++p) {
          double magnitude = 0.0;
          for (std::uint32_t i = 0; i < shape.head_dim; ++i) {
            const double term = host.work[t * s.stride + h * shape.head_dim + i] * element(p, 0, i) * s.scale();
            score[p] += term;
            magnitude += std::fabs(term);
            largest = std::max(largest, std::fabs(element(p, 1, i)));
          }
          top = std::max(top, score[p]);
          most = std::max(most, magnitude);
        }
        for (std::uint32_t p = first; p <= t; ++p) sum += std::exp(score[p] - top);
        const double weight = 2.0 * ((shape.head_dim + 2) * kF32Unit * most + 1e-6) + 2.0 * n * kF32Unit;
        const double bf16 = std::expm1(2.0 * kBf16Unit * most) + 2.0 * kBf16Unit;
        for (std::uint32_t i = 0; i < shape.head_dim; i += 3) {
          double want = 0.0;
          for (std::uint32_t p = first; p <= t; ++p) want += std::exp(score[p] - top) / sum * element(p, 1, i);
          const std::size_t at = t * s.width() + h * shape.head_dim + i;
          ASSERT_NEAR(s.out[at], want, weight * largest) << t << " " << h << " " << i;
          ASSERT_NEAR(s.out[at], host.out[at], (weight + bf16) * largest) << t << " " << h << " " << i;
        }
      }
    }
  }
}

// R1: decoded one by one, in chunks, at once, beside others, in other blocks, in any order of threads: the same bits.
TEST_P(CudaAttention, BitsDependOnTheSequenceAlone) {
  const Shape shape = GetParam();
  const std::uint32_t n = 70;
  Sequence whole(shape, n, 1);
  whole.step(0, n, Path::prefill);
  for (float x : whole.out) ASSERT_FALSE(std::isnan(x));  // nothing that was never written is read
  for (std::uint64_t seed : kSeeds) {
    Sequence s(shape, n, seed, seed + 10);
    for (std::uint32_t t = 0; t < n;) {
      const std::uint32_t end = t < 17 ? 17 : t < 24 ? t + 1 : std::min(n, t + 9);
      s.step(t, end, (t + seed) % 2 == 0 ? Path::decode : Path::prefill);
      t = end;
    }
    ASSERT_TRUE(same_bits(s.out, whole.out)) << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaAttention, testing::ValuesIn(kShapes), [](const auto& info) { return name_of(info.param); });

// More than two pieces of kAttentionSplit, with a window that begins inside one, and large scores.
TEST(CudaAttentionPieces, DecodeIsPrefillAcrossPieces) {
  for (std::uint32_t window : {0u, 300u}) {
    const Shape shape{2, 1, 16, 16, 16, window};
    const std::uint32_t n = 2 * kAttentionSplit + 90;
    Sequence s(shape, n, 5, 1, 3.0f);
    const HostSequence host(s);
    s.step(0, n, Path::prefill);
    const auto want = s.out;
    const auto spot = [&](std::uint32_t t) {
      std::vector<float> work = piece_of(host.work, t * s.stride, (t + 1) * s.stride), got(s.width());
      s.attend({{0, 1, t}}, work.data(), got.data(), Path::decode);
      EXPECT_TRUE(same_bits(got, piece_of(want, t * s.width(), (t + 1) * s.width()))) << t << " window " << window;
    };
    for (std::uint32_t t : {0u, 31u, 32u, 255u, 256u, 257u, 299u, 300u, 511u, 512u, 555u, 556u, n - 1}) spot(t);
    // With keys of spread 3 the softmax is sharp: BF16 keys move scores by up to 2^-9 * 16 * 9 / 4 and so on; the mean is what
    // shows a piece that is lost.
    double error = 0.0, size = 0.0;
    for (std::size_t i = 0; i < want.size(); ++i) error += std::fabs(want[i] - host.out[i]), size += std::fabs(host.out[i]);
    EXPECT_LT(error, 0.02 * size);
  }
}

// Every number of tokens from 1 to 64 in one call, each of another slot's sequence or of the same.
TEST(CudaAttentionBatch, BitsDoNotDependOnTheBatch) {
  const Shape shape{6, 2, 32, 32, 16};
  const std::uint32_t n = 64;
  Sequence s(shape, n, 2);
  const HostSequence host(s);
  s.step(0, n, Path::prefill);
  const auto want = s.out;
  for (std::uint32_t count = 1; count <= n; ++count) {
    std::vector<StepToken> tokens;  // positions in no order, a token without blocks between them
    std::vector<float> work;
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint32_t t = (i * 29 + count) % n;
      tokens.push_back({0, i % 7 == 3 ? kNone : 1, t});
      work.insert(work.end(), host.work.begin() + t * s.stride, host.work.begin() + (t + 1) * s.stride);
    }
    for (Path path : {Path::decode, Path::prefill}) {
      std::vector<float> got(count * s.width(), 5.0f);
      s.attend(tokens, work.data(), got.data(), path);
      for (std::uint32_t i = 0; i < count; ++i) {
        const auto row = piece_of(got, i * s.width(), (i + 1) * s.width());
        const auto& t = tokens[i];
        ASSERT_TRUE(same_bits(row, t.slot == kNone ? std::vector<float>(s.width(), 0.0f)
                                                   : piece_of(want, t.position * s.width(), (t.position + 1) * s.width())))
            << count << " " << i;
      }
    }
  }
}

TEST(CudaAttentionWindow, BlocksBehindItAreNotRead) {
  Sequence s({4, 2, 16, 16, 16, 20}, 60, 1);
  const HostSequence host(s);
  s.step(0, 60, Path::prefill);
  const auto want = s.out;
  // Position 55 sees 36 to 55, 59 sees 40 to 59: blocks 0 and 1 are behind both.
  for (std::uint32_t b : {0u, 1u}) s.table[s.tables.blocks_per_slot + b] = 0;
  std::vector<StepToken> tokens;
  for (std::uint32_t t = 55; t < 60; ++t) tokens.push_back({0, 1, t});
  for (Path path : {Path::decode, Path::prefill}) {
    std::vector<float> got(5 * s.width());
    s.attend(tokens, host.work.data() + 55 * s.stride, got.data(), path);
    EXPECT_TRUE(same_bits(got, piece_of(want, 55 * s.width(), 60 * s.width())));
  }
}

}  // namespace
}  // namespace troupe::kernels
