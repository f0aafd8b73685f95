// Negative controls: the very sources with one of their barriers left out must be found wrong by the shuffled order of threads, whichever
// it is. With all of them the same calls are right for every seed.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/kernels/cuda/barrier_control.h"
#include "tests/kernels/host/lora_testing.h"

#define kThreads kEmbedThreads
#include "kernels/cuda/embed.cu"
#undef kThreads
#define kThreads kFeedThreads
#include "kernels/cuda/feed_resolve.cu"
#undef kThreads
#define kThreads kLoraThreads
#include "kernels/cuda/lora.cu"
#undef kThreads
#define kThreads kRmsNormThreads
#include "kernels/cuda/rms_norm.cu"
#undef kThreads
#include "kernels/cuda/argmax_feed.cu"
#include "kernels/cuda/attention_decode.cu"
#include "kernels/cuda/attention_prefill.cu"
#include "kernels/cuda/matmul.cu"
#include "kernels/cuda/sample_feed.cu"

namespace troupe::kernels {
namespace {

using test::unnoticed;
using Bytes = std::string;
using None = std::vector<std::string>;

template <class T>
Bytes bytes(const std::vector<T>& v) {
  return {reinterpret_cast<const char*>(v.data()), v.size() * sizeof(T)};
}

TEST(Barriers, Matmul) {
  const StoredMatrix m = random_matrix(Format::q4_1, 64, 128, 1);
  const auto x = random_floats(8 * 128, 2);
  EXPECT_EQ(unnoticed([&](std::uint64_t seed) {
              simt::Machine machine(seed);
              std::vector<float> y(8 * 64);
              launch_matmul({m.weight, y.data(), 64, false, nullptr}, x.data(), 8, &machine);
              return bytes(y);
            }),
            None{});
}

// Two rounds: the best one is masked.
TEST(Barriers, ArgmaxFeed) {
  std::vector<float> logits = random_floats(3000, 3);
  logits[1700] = 100.0f;
  EXPECT_EQ(unnoticed([&](std::uint64_t seed) {
              simt::Machine machine(seed);
              std::vector<StepRow> rows(1);
              rows[0].output = 0;
              rows[0].mask_a = 1700;
              Cell cell{0, Status::ok, 1};
              RowReadback readback;
              launch_argmax_feed(rows.data(), 1, logits.data(), 3000, 1, &cell, &readback, nullptr, &machine, 256);
              return std::to_string(cell.id);
            }),
            None{});
}

TEST(Barriers, RmsNorm) {
  const auto x = random_floats(700, 4), gain = random_floats(700, 5);
  EXPECT_EQ(unnoticed([&](std::uint64_t seed) {
              simt::Machine machine(seed);
              std::vector<float> y(700);
              launch_rms_norm(x.data(), gain.data(), y.data(), 1, 700, 1e-5f, &machine);
              return bytes(y);
            }),
            None{});
}

TEST(Barriers, GatherOutputs) {
  std::vector<StepRow> rows(60);
  std::uint32_t tokens = 0;
  for (std::uint32_t r = 0; r < rows.size(); ++r) {
    rows[r].n_tokens = 1 + r % 3;
    rows[r].output = r;
    tokens += rows[r].n_tokens;
  }
  const auto x = random_floats(std::size_t{tokens} * 8, 6);
  EXPECT_EQ(unnoticed([&](std::uint64_t seed) {
              simt::Machine machine(seed);
              std::vector<float> out(rows.size() * 8);
              launch_gather_outputs(rows.data(), static_cast<std::uint32_t>(rows.size()), x.data(), 8, out.data(), &machine);
              return bytes(out);
            }),
            None{});
}

// Prompts, of which one has an id that is none, far behind its begin, and one a block that is missing.
TEST(Barriers, FeedResolve) {
  constexpr std::uint32_t kRows = 70, kLong = 100;
  std::vector<StepRow> rows(kRows);
  std::vector<std::uint32_t> ids, table(2 * kLong, 1);
  table[kLong + 80] = 0;
  for (std::uint32_t r = 0; r < kRows; ++r) {
    rows[r].slot = r == 40 ? 1 : 0;
    rows[r].n_tokens = r == 20 || r == 40 ? kLong : 1 + r % 3;
    rows[r].output = r;
    rows[r].index = static_cast<std::uint32_t>(ids.size());
    for (std::uint32_t i = 0; i < rows[r].n_tokens; ++i) ids.push_back(r == 20 && i == 77 ? 50 : i % 50);
  }
  EXPECT_EQ(unnoticed([&](std::uint64_t seed) {
              simt::Machine machine(seed);
              std::vector<Cell> cells(kRows);
              std::vector<RowReadback> readback(kRows);
              std::vector<StepToken> tokens(ids.size());
              FeedArgs a;
              a.rows = rows.data(), a.n_rows = kRows, a.ids = ids.data();
              a.cells = cells.data(), a.readback = readback.data(), a.tokens = tokens.data();
              a.tag = 3, a.vocab = 50, a.block_size = 1, a.n_blocks = 1;
              a.tables = {table.data(), 2, kLong};
              launch_feed_resolve(a, &machine);
              return bytes(cells) + bytes(readback) + bytes(tokens);
            }),
            None{});
}

TEST(Barriers, Lora) {
  const Adapters m(32, 256, {0, 4});
  const auto x = random_floats(256, 2);
  EXPECT_EQ(unnoticed([&](std::uint64_t seed) {
              simt::Machine machine(seed);
              std::vector<float> y(32), shrunk(lora_scratch_floats(1, 4));
              launch_lora(std::vector{LoraJob{m.slots.data(), 32, y.data(), 32}}, std::vector{LoraRun{0, 1, 1}}, x.data(), 256, 4,
                          shrunk.data(), &machine);
              return bytes(y);
            }),
            None{});
}

// One sequence of 80 positions: a decode row at its end, or a prompt's rows.
class AttentionBarriers : public testing::Test {
 protected:
  static constexpr std::uint32_t kHeads = 4, kDim = 32, kPositions = 80;
  AttentionBarriers() : cache(std::size_t{5} * 2 * 16 * kDim / 2), table(5) {
    for (std::size_t i = 0; i < cache.size(); ++i) cache[i] = bf16_pair(static_cast<float>(i % 13) / 7, static_cast<float>(i % 11) / 5 - 1);
    for (std::uint32_t i = 0; i < 5; ++i) table[i] = i + 1;
  }
  AttentionArgs args(const std::vector<StepToken>& tokens, const std::vector<float>& q, std::vector<float>& out) const {
    return {tokens.data(), static_cast<std::uint32_t>(tokens.size()), 0, kHeads, q.data(), kHeads * kDim, out.data(), 0.2f, 0};
  }
  std::vector<std::uint32_t> cache, table;
  const KvCache kv{cache.data(), 1, 5, 16, 1, kDim};
  const BlockTables tables{table.data(), 1, 5};
};

TEST_F(AttentionBarriers, Decode) {
  const std::vector<StepToken> tokens = {{0, 0, kPositions - 1}};
  const auto q = random_floats(kHeads * kDim, 6);
  EXPECT_EQ(unnoticed([&](std::uint64_t seed) {
              simt::Machine machine(seed);
              std::vector<float> out(kHeads * kDim), partial(attention_partial_floats(1, kHeads, kDim, kPositions));
              launch_attention_decode(args(tokens, q, out), kv, tables, kPositions, partial.data(), &machine);
              return bytes(out);
            }),
            None{});
}

TEST_F(AttentionBarriers, Prefill) {
  std::vector<StepToken> tokens;
  for (std::uint32_t p = kPositions - 6; p < kPositions; ++p) tokens.push_back({0, 0, p});
  const auto q = random_floats(tokens.size() * kHeads * kDim, 6);
  EXPECT_EQ(unnoticed([&](std::uint64_t seed) {
              simt::Machine machine(seed);
              std::vector<float> out(q.size());
              launch_attention_prefill(args(tokens, q, out), kv, tables, &machine);
              return bytes(out);
            }),
            None{});
}

// One row has every part of it: penalties over a history of which a piece comes with the step, a bias, a bar, a mask, top-k, top-p,
// min-p and log-probabilities. The other has a bias alone, which decides.
TEST(Barriers, SampleFeed) {
  constexpr std::uint32_t kVocab = 700, kStride = 64;
  const std::vector<float> logits = random_floats(kVocab, 7);
  std::vector<StepRow> rows(2);
  std::vector<SampleRow> samples(2);
  for (std::uint32_t r = 0; r < 2; ++r) {
    rows[r].output = 0;
    rows[r].slot = r;
    samples[r].row = r;
    samples[r].seed = 5;
    samples[r].temperature = 0.8f;
    samples[r].bias_begin = r;
    samples[r].n_biases = 1;
  }
  const std::vector<IdBias> biases = {{3, 2.0f}, {67, 60.0f}};
  rows[0].position = 40;
  rows[0].mask_a = 9;
  SampleRow& all = samples[0];
  all.prompt_length = 20;
  all.top_k = 300;
  all.top_p = 0.9f;
  all.min_p = 0.01f;
  all.repetition_penalty = 1.3f;
  all.frequency_penalty = 0.5f;
  all.n_bars = 1;
  all.n_history = 30;
  all.history_begin = 1;
  all.n_best = 5;
  all.logprobs_row = 0;
  std::vector<std::uint32_t> ids = {4}, kept;
  for (std::uint32_t p = 0; p < kStride; ++p) ids.push_back(p % 7);
  for (std::uint32_t p = 0; p < 2 * kStride; ++p) kept.push_back(p % 5);
  EXPECT_EQ(unnoticed([&](std::uint64_t seed) {
              simt::Machine machine(seed);
              std::vector<std::uint32_t> history = kept, counts(2 * kVocab);
              std::vector<float> work(2 * kVocab);
              std::vector<Cell> cells(2, {0, Status::ok, 1});
              std::vector<RowReadback> readback(2);
              std::vector<RowLogprobs> logprobs(1);
              SampleArgs a;
              a.rows = rows.data(), a.samples = samples.data(), a.n = 2;
              a.logits = logits.data(), a.vocab = kVocab, a.tag = 1;
              a.biases = biases.data(), a.ids = ids.data();
              a.history = history.data(), a.history_stride = kStride;
              a.cells = cells.data(), a.readback = readback.data(), a.logprobs = logprobs.data();
              launch_sample_feed(a, work.data(), counts.data(), &machine, 128);
              return bytes(cells) + bytes(logprobs) + bytes(work) + bytes(counts);
            }),
            None{});
}

// Who gives the product an x that lies elsewhere has a launch that fails, as on a GPU.
TEST(Alignment, OfWhatIsReadBy128BitsIsKept) {
  const StoredMatrix m = random_matrix(Format::bf16, 16, 64, 1);
  const auto x = random_floats(64 + 4, 2);
  std::vector<float> y(16);
  simt::Machine machine(1);
  const auto product_of = [&](const float* from) { launch_matmul({m.weight, y.data(), 16, false, nullptr}, from, 1, &machine); };
  EXPECT_NO_THROW(product_of(x.data() + 4));
  EXPECT_THROW(product_of(x.data() + 1), simt::Fault);
}

}  // namespace
}  // namespace troupe::kernels
