#include <cstring>
#include <limits>

#include "kernels/host/host_kernels.h"
#include "tests/kernels/cuda/cuda_testing.h"

namespace troupe::kernels {
namespace {

const float kNan = std::nanf(""), kInf = std::numeric_limits<float>::infinity();
constexpr std::uint32_t kTag = 500, kStride = 64;

struct Step {
  std::uint32_t vocab = 0, n_logprobs = 0;
  std::vector<StepRow> rows;
  std::vector<SampleRow> samples;
  std::vector<float> logits;
  std::vector<IdBias> biases;
  std::vector<std::uint32_t> ids, history;
  std::vector<Cell> cells;
  std::vector<RowReadback> readback;
  std::vector<RowLogprobs> logprobs;

  SampleArgs args() {
    SampleArgs a;
    a.rows = rows.data(), a.samples = samples.data(), a.n = static_cast<std::uint32_t>(samples.size());
    a.logits = logits.data(), a.vocab = vocab, a.tag = kTag;
    a.biases = biases.data(), a.ids = ids.data();
    a.history = history.data(), a.history_stride = kStride;
    a.cells = cells.data(), a.readback = readback.data(), a.logprobs = logprobs.data();
    return a;
  }
};

template <class R, class T>
T one_of(R& rng, std::initializer_list<T> of) {
  return of.begin()[rng() % of.size()];
}

// Rows of every mix of parameters, with logits of every kind: wide, narrow, tied, one huge, half of them -infinity, NaNs.
Step random_step(std::uint32_t n, std::uint32_t vocab, std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal(0, 3);
  Step s;
  s.vocab = vocab;
  std::uint32_t output = 0;
  for (std::uint32_t r = 0; r < n; ++r) {
    StepRow row;
    row.slot = r;
    row.position = static_cast<std::uint32_t>(rng() % (kStride + 4));
    row.sampled = rng() % 5 != 0 ? 1 : 0;
    row.output = row.sampled != 0 || rng() % 2 == 0 ? output++ : kNone;
    if (rng() % 4 == 0) row.mask_a = static_cast<std::uint32_t>(rng() % vocab);
    if (rng() % 8 == 0) row.mask_b = static_cast<std::uint32_t>(rng() % (vocab + 2));
    s.rows.push_back(row);
    const Status status = rng() % 12 == 0 ? Status::poisoned : Status::ok;
    s.cells.push_back({0, status, kTag});
    s.readback.push_back({static_cast<std::uint32_t>(rng() % vocab), 0, status, kTag});
    for (std::uint32_t p = 0; p < kStride; ++p) s.history.push_back(static_cast<std::uint32_t>(rng() % (vocab + 1)));
    if (row.output != kNone) {
      const auto kind = rng() % 8;
      for (std::uint32_t i = 0; i < vocab; ++i) {
        float x = normal(rng);
        if (kind == 1) x = std::round(x);
        if (kind == 2) x = 1.0f;
        if (kind == 3) x *= 20;
        if (kind == 4 && rng() % 2 == 0) x = -kInf;
        if (kind == 5 && rng() % 3 == 0) x = kNan;
        if (kind == 6) x = -kInf;
        s.logits.push_back(x == 0.0f && rng() % 2 == 0 ? -0.0f : x);
      }
      if (kind == 0) s.logits[s.logits.size() - 1 - rng() % vocab] = rng() % 2 == 0 ? kInf : 3e38f;
    }
    if (row.sampled == 0) continue;
    SampleRow p;
    p.row = r;
    p.output_index = static_cast<std::uint32_t>(rng() % 1000);
    p.seed = rng();
    p.prompt_length = static_cast<std::uint32_t>(rng() % (kStride + 1));
    p.temperature = one_of(rng, {0.0f, 1e-30f, 0.3f, 0.7f, 1.0f, 1.5f, 2.0f, 50.0f});
    p.top_k = one_of(rng, {0u, 0u, 0u, 1u, 2u, 20u, vocab, vocab + 1});
    p.top_p = one_of(rng, {1.0f, 1.0f, 1.0f, 0.0f, 1e-9f, 0.9f, 0.999f});
    p.min_p = one_of(rng, {0.0f, 0.0f, 0.0f, 0.05f, 0.5f, 1.0f});
    if (rng() % 3 == 0) p.repetition_penalty = one_of(rng, {0.5f, 1.1f, 2.0f});
    if (rng() % 3 == 0) p.presence_penalty = one_of(rng, {-2.0f, 0.5f, 1.5f});
    if (rng() % 3 == 0) p.frequency_penalty = one_of(rng, {-0.7f, 0.3f, 2.0f});
    p.bias_begin = static_cast<std::uint32_t>(s.biases.size());
    p.n_biases = static_cast<std::uint32_t>(rng() % 2 * (rng() % 5));
    for (std::uint32_t i = 0; i < p.n_biases; ++i)
      s.biases.push_back({static_cast<std::uint32_t>(rng() % (vocab + 1)), one_of(rng, {-100.0f, -1.0f, 0.1f, 5.0f, 100.0f})});
    p.bar_begin = static_cast<std::uint32_t>(s.ids.size());
    p.n_bars = static_cast<std::uint32_t>(rng() % 2 * (rng() % 4));
    for (std::uint32_t i = 0; i < p.n_bars; ++i) s.ids.push_back(static_cast<std::uint32_t>(rng() % (vocab + 1)));
    p.history_begin = static_cast<std::uint32_t>(s.ids.size());
    if (rng() % 4 == 0) p.n_history = static_cast<std::uint32_t>(rng() % (row.position + 1));
    for (std::uint32_t i = 0; i < p.n_history; ++i) s.ids.push_back(static_cast<std::uint32_t>(rng() % vocab));
    p.n_best = one_of(rng, {0u, 1u, 5u, 20u, 30u});
    if (rng() % 2 == 0) p.logprobs_row = s.n_logprobs++;
    s.samples.push_back(p);
  }
  s.logprobs.resize(s.n_logprobs);
  return s;
}

testing::AssertionResult same(const Step& got, const Step& want) {
  for (std::size_t r = 0; r < want.rows.size(); ++r) {
    if (std::memcmp(&got.cells[r], &want.cells[r], sizeof(Cell)) != 0 ||
        std::memcmp(&got.readback[r], &want.readback[r], sizeof(RowReadback)) != 0)
      return testing::AssertionFailure() << "row " << r << ": " << got.cells[r].id << " and not " << want.cells[r].id;
  }
  if (got.history != want.history) return testing::AssertionFailure() << "the history";
  for (std::size_t i = 0; i < want.logprobs.size(); ++i) {
    if (std::memcmp(&got.logprobs[i], &want.logprobs[i], sizeof(RowLogprobs)) != 0)
      return testing::AssertionFailure() << "log-probabilities " << i;
  }
  return testing::AssertionSuccess();
}

// A hundred thousand rows, in four parts.
class CudaSampleFeedRows : public testing::TestWithParam<std::uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Parts, CudaSampleFeedRows, testing::Range<std::uint64_t>(0, 4));

TEST_P(CudaSampleFeedRows, GetTheHostsTokens) {
  const auto host = make_host_kernels({});
  Machine m(21 + GetParam());
  std::size_t rows = 0, chosen = 0, none = 0, not_best = 0;
  for (std::uint64_t round = GetParam() * 1000; rows < 25000; ++round) {
    const std::uint32_t vocab = round % 50 == 0   ? 3000
                                : round % 10 == 0 ? 1 + static_cast<std::uint32_t>(round % 3)
                                                  : 40 + static_cast<std::uint32_t>(round % 60);
    const Step before = random_step(vocab == 3000 ? 60 : 500, vocab, round);
    Step want = before, got = before, best = before;
    host->sample(want.args());
    for (SampleRow& s : best.samples) s.temperature = 0;
    host->sample(best.args());
    std::vector<float> work(got.samples.size() * vocab, kNan);
    std::vector<std::uint32_t> counts(got.samples.size() * vocab);
    launch_sample_feed(got.args(), work.data(), counts.data(), m.stream(), round % 8 == 0 ? 256 : 32);
    ASSERT_TRUE(same(got, want)) << "round " << round;
    for (std::uint32_t c : counts) ASSERT_EQ(c, 0u);
    for (const SampleRow& s : want.samples) {
      const Cell& cell = want.cells[s.row];
      none += cell.status == Status::no_token;
      chosen += cell.status == Status::ok;
      not_best += cell.status == Status::ok && cell.id != best.cells[s.row].id;
    }
    rows += want.samples.size();
  }
  EXPECT_GT(chosen, 17000u);
  EXPECT_GT(none, 750u);
  EXPECT_GT(not_best, 2500u);
}

TEST(CudaSampleFeed, NoBlockSizeAndNoOrderChangesABit) {
  const auto host = make_host_kernels({});
  Machine m(22);
  for (std::uint64_t round = 0; round < 4; ++round) {
    const Step before = random_step(20, 1500, 1000 + round);
    Step want = before;
    host->sample(want.args());
    for (unsigned threads : {32u, 64u, 512u, 1024u}) {
      Step got = before;
      std::vector<float> work(got.samples.size() * got.vocab, kNan);
      std::vector<std::uint32_t> counts(got.samples.size() * got.vocab);
      launch_sample_feed(got.args(), work.data(), counts.data(), m.stream(), threads);
      ASSERT_TRUE(same(got, want)) << threads;
    }
  }
}

// A row's token and log-probabilities are the same alone and among others.
TEST(CudaSampleFeed, NoRowMattersToAnother) {
  const Step all = random_step(30, 200, 77);
  Machine m(23);
  const auto run = [&m](Step s) {
    std::vector<float> work(s.samples.size() * s.vocab, kNan);
    std::vector<std::uint32_t> counts(s.samples.size() * s.vocab);
    launch_sample_feed(s.args(), work.data(), counts.data(), m.stream(), 64);
    return s;
  };
  const Step together = run(all);
  for (std::size_t i = 0; i < all.samples.size(); ++i) {
    Step one = all;
    one.samples = {all.samples[i]};
    const Step alone = run(one);
    const std::uint32_t r = all.samples[i].row, k = all.samples[i].logprobs_row;
    EXPECT_EQ(std::memcmp(&alone.cells[r], &together.cells[r], sizeof(Cell)), 0);
    if (k != kNone) {
      EXPECT_EQ(std::memcmp(&alone.logprobs[k], &together.logprobs[k], sizeof(RowLogprobs)), 0);
    }
  }
}

}  // namespace
}  // namespace troupe::kernels
