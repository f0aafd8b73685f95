#include "actors/sampler/core.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <new>
#include <optional>
#include <vector>

#include "messages/sample.h"

namespace {
std::atomic<std::size_t> allocations{0};
}
void* operator new(std::size_t size) {
  ++allocations;
  if (void* p = std::malloc(size)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace troupe::actors {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
using Tokens = std::vector<Token>;

struct Ask {
  RequestId request{1, 1};
  Shared<Request> params;
  std::vector<float> logits;
  std::uint64_t seed = 0;
  std::uint32_t output_index = 0;
  Tokens new_tokens{};
  Tokens barred{};
  bool fresh = true;
};

Shared<Request> request(SamplingParams sampling, Tokens prompt = {}) {
  Request r;
  r.prompt = std::move(prompt);
  r.sampling = std::move(sampling);
  r.stop.max_tokens = 1000;
  return Shared<Request>::of(std::move(r));
}

// One batch with these rows, in order; all logits of one size.
Shared<SampledBatch> ask_all(SamplerCore& core, const std::vector<Ask>& asks, std::vector<RequestId> closed = {}) {
  SampleBatch b;
  b.ticket = {1, 7};
  std::vector<float> logits;
  for (const Ask& a : asks) {
    SampleRow row;
    row.request = a.request;
    row.params = a.params;
    row.seed = a.seed;
    row.logits_row = static_cast<std::uint32_t>(b.rows.size());
    row.output_index = a.output_index;
    row.fresh = a.fresh;
    row.new_begin = static_cast<std::uint32_t>(b.tokens.size());
    row.new_size = static_cast<std::uint32_t>(a.new_tokens.size());
    b.tokens.insert(b.tokens.end(), a.new_tokens.begin(), a.new_tokens.end());
    row.bar_begin = static_cast<std::uint32_t>(b.tokens.size());
    row.bar_size = static_cast<std::uint32_t>(a.barred.size());
    b.tokens.insert(b.tokens.end(), a.barred.begin(), a.barred.end());
    b.rows.push_back(row);
    logits.insert(logits.end(), a.logits.begin(), a.logits.end());
  }
  const auto n = static_cast<std::uint32_t>(asks.size());
  b.logits = {logits.data(), n, n == 0 ? 0 : static_cast<std::uint32_t>(logits.size() / n)};
  b.closed = std::move(closed);
  SamplerOutbox out;
  core.on(Sample{{}, Shared<SampleBatch>::of(std::move(b))}, 0, out);
  EXPECT_EQ(out.items().size(), 1u);
  auto answer = std::get<Sampled>(out.items()[0]).batch;
  EXPECT_EQ(answer->ticket, (Ticket{1, 7}));
  EXPECT_EQ(answer->rows.size(), asks.size());
  return answer;
}

SampledRow ask(SamplerCore& core, const Ask& a) { return ask_all(core, {a})->rows[0]; }

// The choice of a new sampler.
SampledRow choose(SamplingParams sampling, std::vector<float> logits, Tokens prompt = {}, Tokens output = {}, Tokens barred = {}) {
  SamplerCore core(static_cast<std::uint32_t>(logits.size()));
  const auto index = static_cast<std::uint32_t>(output.size());
  return ask(core, {.params = request(std::move(sampling), std::move(prompt)),
                    .logits = std::move(logits),
                    .output_index = index,
                    .new_tokens = std::move(output),
                    .barred = std::move(barred)});
}

TEST(SamplerCore, GreedyTakesTheLowestOfEquals) {
  const auto row = choose({}, {1, 4, kNan, 4, 2});
  EXPECT_EQ(row.status, CellStatus::ok);
  EXPECT_EQ(row.id, 1u);
  EXPECT_TRUE(std::isnan(row.logprob));
  EXPECT_EQ(row.best_size, 0u);
}

TEST(SamplerCore, NothingToChoose) {
  EXPECT_EQ(choose({}, {kNan, kNan}).status, CellStatus::no_token);
  EXPECT_EQ(choose({.temperature = 1}, {kNan, kNan}).status, CellStatus::no_token);
  EXPECT_EQ(choose({}, {1, 2}, {}, {}, {0, 1}).status, CellStatus::no_token);
  EXPECT_EQ(choose({.temperature = 1}, {1, 2}, {}, {}, {1, 0}).status, CellStatus::no_token);
  EXPECT_EQ(choose({.temperature = 1}, {-kInfinity, 2}, {}, {}, {1}).status, CellStatus::no_token);
}

TEST(SamplerCore, BarredIdsAreNotChosen) {
  EXPECT_EQ(choose({}, {1, 4, 3}, {}, {}, {1}).id, 2u);
  EXPECT_EQ(choose({.temperature = 1e-6f}, {1, 4, 3}, {}, {}, {1, 2}).id, 0u);
  // Barring comes after the bias, and an id outside the vocabulary bars nothing.
  EXPECT_EQ(choose({.logit_bias = {{1, 1000}}}, {1, 4, 3}, {}, {}, {1, 99}).id, 2u);
}

TEST(SamplerCore, LogitBias) {
  EXPECT_EQ(choose({.logit_bias = {{0, 3.5f}, {9, 1000}}}, {1, 4, 3}).id, 0u);
  EXPECT_EQ(choose({.logit_bias = {{0, 2.5f}}}, {1, 4, 3}).id, 1u);
  EXPECT_EQ(choose({.logit_bias = {{1, -100}}}, {1, 4, 3}).id, 2u);
}

// Each logit at which another id begins to win, by hand.
TEST(SamplerCore, RepetitionPenaltyOverPromptAndOutput) {
  // 4 / 2 = 2: below 2.1, above 1.9. The id stands in the prompt, then in the output; how often does not matter.
  for (auto [prompt, output] : {std::pair{Tokens{0, 0}, Tokens{}}, {Tokens{}, Tokens{0}}, {Tokens{0}, Tokens{0, 0}}}) {
    EXPECT_EQ(choose({.repetition_penalty = 2}, {4, 2.1f, -9}, prompt, output).id, 1u);
    EXPECT_EQ(choose({.repetition_penalty = 2}, {4, 1.9f, -9}, prompt, output).id, 0u);
  }
  // -1 * 2 = -2.
  EXPECT_EQ(choose({.repetition_penalty = 2}, {-1, -1.9f, -9}, {0}).id, 1u);
  EXPECT_EQ(choose({.repetition_penalty = 2}, {-1, -2.1f, -9}, {0}).id, 0u);
  EXPECT_EQ(choose({.repetition_penalty = 2}, {4, 2.1f, -9}, {2}, {1}).id, 0u);
}

TEST(SamplerCore, FrequencyAndPresenceOverOutputOnly) {
  // 4 - 3 * 0.5 = 2.5
  EXPECT_EQ(choose({.frequency_penalty = 0.5f}, {4, 2.6f}, {}, {0, 0, 0}).id, 1u);
  EXPECT_EQ(choose({.frequency_penalty = 0.5f}, {4, 2.4f}, {}, {0, 0, 0}).id, 0u);
  EXPECT_EQ(choose({.frequency_penalty = 0.5f}, {4, 3.9f}, {0, 0, 0}).id, 0u);
  // 4 - 0.5, however often
  EXPECT_EQ(choose({.presence_penalty = 0.5f}, {4, 3.6f}, {}, {0, 0, 0}).id, 1u);
  EXPECT_EQ(choose({.presence_penalty = 0.5f}, {4, 3.4f}, {}, {0, 0, 0}).id, 0u);
  EXPECT_EQ(choose({.presence_penalty = 0.5f}, {4, 3.9f}, {0}).id, 0u);
  // 4 / 2 - 2 * 0.5 - 0.25 = 0.75, then the bias: 0.85
  SamplingParams all{.repetition_penalty = 2, .presence_penalty = 0.25f, .frequency_penalty = 0.5f, .logit_bias = {{0, 0.1f}}};
  EXPECT_EQ(choose(all, {4, 0.9f}, {}, {0, 0}).id, 1u);
  EXPECT_EQ(choose(all, {4, 0.8f}, {}, {0, 0}).id, 0u);
}

TEST(SamplerCore, CountsGoOnAsAFreshCountWould) {
  const SamplingParams params{
      .temperature = 1, .repetition_penalty = 1.3f, .presence_penalty = 0.4f, .frequency_penalty = 0.2f, .logprobs = 3u};
  const auto r = request(params, {3, 3, 5});
  SamplerCore going(16);
  Tokens output;
  for (std::uint32_t i = 0; i < 200; ++i) {
    std::vector<float> logits(16);
    for (std::size_t k = 0; k < 16; ++k) logits[k] = std::sin(static_cast<float>(i * 16 + k)) * 3;
    Ask next{.params = r, .logits = logits, .seed = 77, .output_index = i, .fresh = i == 0};
    if (i > 0) next.new_tokens = {output.back()};
    const auto a = ask(going, next);
    SamplerCore anew(16);
    next.new_tokens = output;
    next.fresh = true;
    const auto b = ask(anew, next);
    ASSERT_EQ(a.status, CellStatus::ok);
    ASSERT_EQ(a.id, b.id) << i;
    ASSERT_EQ(a.logprob, b.logprob);
    if (i % 50 == 20) {  // a preemption: counted again from the start, in the same sampler
      ASSERT_EQ(ask(going, next).id, a.id);
    }
    output.push_back(a.id);
  }
}

TEST(SamplerCore, WhatContradictsTheBooksIsPoisoned) {
  const SamplingParams penalty{.frequency_penalty = 1};
  SamplerCore core(2);
  Ask a{.params = request(penalty), .logits = {1, 2}, .output_index = 1, .new_tokens = {0}, .fresh = false};
  EXPECT_EQ(ask(core, a).status, CellStatus::poisoned);  // never seen
  a.fresh = true;
  EXPECT_EQ(ask(core, a).status, CellStatus::ok);
  a.fresh = false;
  a.output_index = 3;
  EXPECT_EQ(ask(core, a).status, CellStatus::poisoned);  // two tokens known, three claimed
  Ask wrong_size = a;
  wrong_size.logits = {1, 2, 3};
  EXPECT_EQ(ask(core, wrong_size).status, CellStatus::poisoned);
  Ask no_params = a;
  no_params.params = {};
  EXPECT_EQ(ask(core, no_params).status, CellStatus::poisoned);

  SampleBatch b;
  b.rows.resize(3);
  for (SampleRow& row : b.rows) row.params = request({}), row.fresh = true;
  b.rows[0].logits_row = 1;
  b.rows[1].new_size = 1;
  b.rows[2].bar_begin = 0xffffffffu, b.rows[2].bar_size = 2;
  const std::array<float, 2> logits{1, 2};
  b.logits = {logits.data(), 1, 2};
  SamplerOutbox out;
  core.on(Sample{{}, Shared<SampleBatch>::of(b)}, 0, out);
  b.logits = {nullptr, 3, 2};
  core.on(Sample{{}, Shared<SampleBatch>::of(b)}, 0, out);
  for (const auto& item : out.items()) {
    for (const auto& row : std::get<Sampled>(item).batch->rows) EXPECT_EQ(row.status, CellStatus::poisoned);
  }
}

TEST(SamplerCore, APoisonedRowLeavesTheOthersAlone) {
  SamplerCore core(2);
  const auto answer = ask_all(core, {{.request = {1, 1}, .params = request({}), .logits = {1, 2}},
                                     {.request = {2, 1}, .params = request({}), .logits = {1, 2}, .fresh = false},
                                     {.request = {3, 1}, .params = request({}), .logits = {2, 1}}});
  EXPECT_EQ(answer->rows[0].id, 1u);
  EXPECT_EQ(answer->rows[1].status, CellStatus::poisoned);
  EXPECT_EQ(answer->rows[2].status, CellStatus::ok);
  EXPECT_EQ(answer->rows[2].id, 0u);
  EXPECT_EQ(answer->rows[2].request, (RequestId{3, 1}));
}

TEST(SamplerCore, LogprobsAreOfTheRawLogits) {
  // e^logit: 1, 2, 4, 1 of 8.
  const std::vector<float> logits{0, std::log(2.0f), std::log(4.0f), 0};
  SamplerCore core(4);
  SamplingParams p{.temperature = 0.3f, .top_k = 2, .presence_penalty = 1, .logit_bias = {{3, 100}}, .logprobs = 3u};
  const auto answer = ask_all(core, {{.request = {1, 1}, .params = request(p), .logits = logits},
                                     {.request = {2, 1}, .params = request({.logprobs = 0u}), .logits = logits}});
  const auto& row = answer->rows[0];
  EXPECT_EQ(row.id, 3u);
  EXPECT_NEAR(row.logprob, std::log(1 / 8.0), 1e-6);
  ASSERT_EQ(row.best_begin, 0u);
  ASSERT_EQ(row.best_size, 3u);
  const Token ids[] = {2, 1, 0};  // 0 and 3 are equal: the lower
  const double probabilities[] = {0.5, 0.25, 0.125};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(answer->best[i].id, ids[i]);
    EXPECT_NEAR(answer->best[i].logprob, std::log(probabilities[i]), 1e-6);
  }
  EXPECT_EQ(answer->rows[1].best_begin, 3u);
  EXPECT_EQ(answer->rows[1].best_size, 0u);
  EXPECT_NEAR(answer->rows[1].logprob, std::log(0.5), 1e-6);
}

TEST(SamplerCore, MoreLogprobsThanCandidates) {
  SamplerCore core(3);
  const auto answer = ask_all(core, {{.params = request({.logprobs = 20u}), .logits = {1, kNan, 2}}});
  ASSERT_EQ(answer->rows[0].best_size, 2u);
  EXPECT_EQ(answer->best[0].id, 2u);
  EXPECT_EQ(answer->best[1].id, 0u);
}

TEST(SamplerCore, DeterminedBySeedAndIndexAlone) {
  const std::vector<float> logits{0.5f, 0.1f, 0.3f, 0.2f, 0.4f, 0, 0, 0};
  const auto r = request({.temperature = 1});
  SamplerCore alone(8), batched(8);
  std::array<int, 8> seen{};
  int differ = 0;
  for (std::uint32_t i = 0; i < 300; ++i) {
    const auto a = ask(alone, {.params = r, .logits = logits, .seed = 5, .output_index = i});
    const auto b = ask_all(batched, {{.request = {2, 1}, .params = r, .logits = logits, .seed = 6, .output_index = i},
                                     {.request = {1, 1}, .params = r, .logits = logits, .seed = 5, .output_index = i}});
    ASSERT_EQ(a.id, b->rows[1].id);
    differ += a.id != b->rows[0].id;
    ++seen[a.id];
  }
  EXPECT_GT(differ, 100);
  for (int n : seen) EXPECT_GT(n, 0);
}

// Sum of (seen - expected)^2 / expected over four ids for 8000 draws at `sampled`, against the probabilities at `claimed`.
double chi_squared(float sampled, double claimed) {
  const std::vector<float> logits{0, 1, 2, -1};
  SamplerCore core(4);
  const auto r = request({.temperature = sampled});
  std::array<int, 4> seen{};
  constexpr int kDraws = 8000;
  for (std::uint32_t i = 0; i < kDraws; ++i) ++seen[ask(core, {.params = r, .logits = logits, .seed = 99, .output_index = i}).id];
  double sum = 0, result = 0;
  for (float x : logits) sum += std::exp(x / claimed);
  for (std::size_t i = 0; i < 4; ++i) {
    const double expected = kDraws * std::exp(logits[i] / claimed) / sum;
    result += (seen[i] - expected) * (seen[i] - expected) / expected;
  }
  return result;
}

// 3 degrees of freedom: above 21.1 once in 10,000.
TEST(SamplerCore, FollowsTheDistribution) {
  EXPECT_LT(chi_squared(1, 1), 21.1);
  EXPECT_LT(chi_squared(2, 2), 21.1);
  EXPECT_GT(chi_squared(1, 1.2), 21.1);
  EXPECT_GT(chi_squared(2, 1.5), 21.1);
}

TEST(SamplerCore, ClosedRequestsAreForgotten) {
  SamplerCore core(2);
  const auto r = request({.frequency_penalty = 1});
  for (std::uint64_t i = 1; i <= 3; ++i) ask(core, {.request = {i, 1}, .params = r, .logits = {1, 2}});
  EXPECT_EQ(core.requests(), 3u);
  ask_all(core, {}, {{1, 1}, {3, 1}, {9, 9}});
  EXPECT_EQ(core.requests(), 1u);
  EXPECT_EQ(ask(core, {.request = {1, 1}, .params = r, .logits = {1, 2}, .fresh = false}).status, CellStatus::poisoned);
  // Another request in the memory of a closed one begins with nothing: 2 - 1 is what 1 more output of id 1 leaves.
  EXPECT_EQ(ask(core, {.request = {5, 1}, .params = r, .logits = {1.1f, 2}}).id, 1u);
  EXPECT_EQ(ask(core, {.request = {5, 1}, .params = r, .logits = {1.1f, 2}, .output_index = 1, .new_tokens = {1}, .fresh = false}).id, 0u);
}

TEST(SamplerCore, SteadyStateAllocatesNothing) {
  constexpr std::uint32_t kVocab = 2000;
  SamplerCore core(kVocab);
  std::vector<float> logits(kVocab * 3);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = std::sin(static_cast<float>(i)) * 5;
  const auto params = request({.temperature = 1, .top_k = 40, .frequency_penalty = 0.1f, .logprobs = 5u}, {1, 2, 3});
  Pool<SampleBatch> batches;
  SamplerOutbox out;
  std::size_t before = 0;
  for (std::uint32_t step = 0; step < 300; ++step) {
    if (step == 20) before = allocations;
    auto b = batches.draft();
    for (std::uint32_t i = 0; i < 3; ++i) {
      SampleRow row;
      row.request = {i + 1, 1};
      row.params = params;
      row.logits_row = i;
      row.output_index = step;
      row.fresh = step == 0;
      row.new_begin = static_cast<std::uint32_t>(b->tokens.size());
      row.new_size = step > 0;
      if (step > 0) b->tokens.push_back((step * 7 + i) % kVocab);
      b->rows.push_back(row);
    }
    b->logits = {logits.data(), 3, kVocab};
    core.on(Sample{{}, std::move(b).freeze()}, 0, out);
    out.drain([](Sampled m) { EXPECT_EQ(m.batch->rows[2].status, CellStatus::ok); });
  }
  EXPECT_EQ(allocations - before, 0u);
}

}  // namespace
}  // namespace troupe::actors
