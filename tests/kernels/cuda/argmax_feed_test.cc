#include <limits>

#include "kernels/host/host_kernels.h"
#include "tests/kernels/cuda/cuda_testing.h"

namespace troupe::kernels {
namespace {

const float kNan = std::nanf(""), kInf = std::numeric_limits<float>::infinity();
constexpr std::uint32_t kTag = 500;

struct Step {
  std::vector<StepRow> rows;
  std::vector<float> logits;
  std::vector<Cell> cells;
  std::vector<RowReadback> readback;
  std::vector<float> out;
};

// Rows full of ties, NaNs and infinities; masks that hit the argmax, its runner-up, nothing, or lie outside.
Step random_step(std::uint32_t n, std::uint32_t vocab, std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  Step s;
  s.rows.resize(n);
  std::uint32_t outputs = 0, logits_rows = 0;
  for (StepRow& r : s.rows) {
    r.output = rng() % 8 == 0 ? kNone : outputs++;
    if (r.output != kNone && rng() % 4 == 0) r.logits_row = logits_rows++;
  }
  s.logits.resize(std::size_t{outputs} * vocab);
  for (std::uint32_t o = 0; o < outputs; ++o) {
    const int kind = static_cast<int>(rng() % 10);
    for (std::uint32_t i = 0; i < vocab; ++i) {
      float& x = s.logits[std::size_t{o} * vocab + i];
      x = kind == 0 ? kNan : kind == 1 ? -kInf : rng() % 5 == 0 ? kNan : rng() % 9 == 0 ? -kInf : static_cast<float>(rng() % 4) - 2.0f;
      if (x == 0.0f && rng() % 2 == 0) x = -0.0f;
    }
  }
  for (StepRow& r : s.rows) {
    if (r.output == kNone) continue;
    const float* v = s.logits.data() + std::size_t{r.output} * vocab;
    const auto top = [&](std::uint32_t without) {
      std::uint32_t best = kNone;
      for (std::uint32_t i = 0; i < vocab; ++i) {
        if (i != without && !std::isnan(v[i]) && (best == kNone || v[i] > v[best])) best = i;
      }
      return best;
    };
    const auto pick = [&](std::uint32_t other) -> std::uint32_t {
      const auto kind = rng() % 4;
      return kind == 0 ? kNone : kind == 1 ? static_cast<std::uint32_t>(rng() % (vocab + 2)) : top(other);
    };
    r.mask_a = pick(kNone);
    r.mask_b = pick(r.mask_a);
    if (rng() % 2 == 0) std::swap(r.mask_a, r.mask_b);
  }
  s.cells.resize(n);
  s.readback.resize(n);
  for (std::uint32_t r = 0; r < n; ++r) {
    const Status status = s.rows[r].output == kNone ? Status::no_token : rng() % 6 == 0 ? Status::poisoned : Status::ok;
    s.cells[r] = {0, status, kTag};
    s.readback[r] = {static_cast<std::uint32_t>(rng() % vocab), 0, status, kTag};
  }
  s.out.assign(std::size_t{logits_rows} * vocab, -7.0f);
  return s;
}

void expect_same(const Step& got, const Step& want) {
  for (std::size_t r = 0; r < want.rows.size(); ++r) {
    ASSERT_EQ(got.cells[r].id, want.cells[r].id) << r;
    ASSERT_EQ(got.cells[r].status, want.cells[r].status) << r;
    ASSERT_EQ(got.cells[r].tag, want.cells[r].tag) << r;
    ASSERT_EQ(got.readback[r].input, want.readback[r].input) << r;
    ASSERT_EQ(got.readback[r].id, want.readback[r].id) << r;
    ASSERT_EQ(got.readback[r].status, want.readback[r].status) << r;
    ASSERT_EQ(got.readback[r].tag, want.readback[r].tag) << r;
  }
  EXPECT_TRUE(same_bits(got.out, want.out));
}

TEST(CudaArgmaxFeed, IsTheHostsAnswerForEveryBlockSizeAndOrder) {
  const auto host = make_host_kernels({});
  std::uint64_t round = 0;
  Machine m(11);  // goes on drawing: every launch has an order of its own
  std::size_t masked = 0;
  for (std::uint32_t vocab : {1u, 2u, 31u, 33u, 64u, 100u, 1500u}) {
    for (int repeat = 0; repeat < 4; ++repeat) {
      const Step before = random_step(24, vocab, ++round);
      Step want = before;
      const auto n = static_cast<std::uint32_t>(want.rows.size());
      host->argmax(want.rows.data(), n, want.logits.data(), vocab, kTag, want.cells.data(), want.readback.data(), want.out.data());
      for (std::uint32_t r = 0; r < n; ++r) masked += want.cells[r].status == Status::ok && want.rows[r].mask_a != kNone;
      for (unsigned threads : {32u, 64u, 256u, 1024u}) {
        Step got = before;
        launch_argmax_feed(got.rows.data(), n, got.logits.data(), vocab, kTag, got.cells.data(), got.readback.data(), got.out.data(),
                           m.stream(), threads);
        expect_same(got, want);
        if (HasFatalFailure()) FAIL() << "vocabulary " << vocab << ", " << threads << " threads, round " << round;
      }
    }
  }
  EXPECT_GT(masked, 100u);
}

TEST(CudaArgmaxFeed, LowestIndexWinsNanNever) {
  const auto f = [](std::vector<float> v, std::uint32_t a = kNone, std::uint32_t b = kNone) {
    std::vector<StepRow> row(1);
    row[0].output = 0, row[0].mask_a = a, row[0].mask_b = b;
    std::vector<Cell> cell{{0, Status::ok, kTag}};
    std::vector<RowReadback> readback(1);
    Machine m(4);
    launch_argmax_feed(row.data(), 1, v.data(), static_cast<std::uint32_t>(v.size()), kTag, cell.data(), readback.data(), nullptr,
                       m.stream(), 64);
    return cell[0].status == Status::ok ? cell[0].id : kNone;
  };
  std::vector<float> tied(400, 1.0f);
  EXPECT_EQ(f(tied), 0u);
  tied[399] = tied[123] = tied[200] = 2.0f;
  EXPECT_EQ(f(tied), 123u);
  EXPECT_EQ(f(tied, 123, 200), 399u);
  EXPECT_EQ(f(tied, 5, 6), 123u);  // a mask counts only if it hits the argmax
  EXPECT_EQ(f({kNan, -kInf, kNan}), 1u);
  EXPECT_EQ(f({-0.0f, 0.0f}), 0u);
  EXPECT_EQ(f(std::vector<float>(90, kNan)), kNone);
  EXPECT_EQ(f({kNan, 3, kNan, 4}, 3, 1), kNone);
}

}  // namespace
}  // namespace troupe::kernels
