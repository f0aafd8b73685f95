// Rows that the device samples: they run ahead, and bring what the device does not have.
#include <cmath>

#include "tests/actors/scheduler/rig.h"

namespace troupe::actors {
namespace {

ModelInfo sampling_model() {
  ModelInfo m = model();
  m.supports_device_sampling = true;
  m.max_sample_words = 40;
  return m;
}

class SampledRows : public SchedulerTest {
 protected:
  static Request sampled(std::uint64_t client, std::uint32_t prompt, std::uint32_t max_tokens) {
    Request q = request(client, prompt, max_tokens);
    q.sampling.temperature = 0.7f;
    q.sampling.top_k = 30;
    return q;
  }
  const RowSample& sample(std::size_t plan) { return plans.at(plan)->samples.at(0); }
};

TEST_F(SampledRows, AreFedLikeOthers) {
  make({.depth = 2}, sampling_model());
  admit(sampled(1, 3, 10));
  EXPECT_EQ(plans[0]->rows[0].readback, RowReadback::sample);
  EXPECT_EQ(sample(0).output_index, 0u);
  EXPECT_EQ(sample(0).seed, 5u);
  EXPECT_EQ(sample(0).prompt_length, 3u);
  EXPECT_EQ(sample(0).temperature, 0.7f);
  EXPECT_EQ(sample(0).top_k, 30u);
  EXPECT_EQ(sample(0).logprobs_row, RowSample::kNone);
  accept();
  ASSERT_EQ(plans.size(), 2u);
  EXPECT_TRUE(plans[1]->rows[0].source.is_feed());
  EXPECT_EQ(sample(1).output_index, 1u);
  accept();
  settle(1, 7);
  settle(2, 8, 7);
  EXPECT_EQ(tokens[1], (std::vector<Token>{7, 8}));
  EXPECT_TRUE(samples.empty()) << "the sampler has nothing to do";
}

TEST_F(SampledRows, BringTheIdsThatTheDeviceDoesNotHaveOnceAndAgainAfterAFailure) {
  make({.depth = 2}, sampling_model());
  cached_len = 4;
  Request q = sampled(1, 6, 10);
  q.sampling.frequency_penalty = 0.5f;
  admit(q);
  ASSERT_EQ(sample(0).n_history, 4u);
  for (std::uint32_t i = 0; i < 4; ++i) EXPECT_EQ(plans[0]->tokens[sample(0).history_begin + i], 9u);
  accept();
  EXPECT_EQ(sample(1).n_history, 0u) << "the step before brings it";
  accept();
  StepResult failed;
  failed.ticket = plans[0]->ticket;
  failed.error = DeviceError{DeviceError::Phase::forward, ErrorCode::device_failed, 0, 0, "so"};
  send(Settled{{}, Shared<StepResult>::of(failed), facts});
  ASSERT_EQ(plans.size(), 3u);
  EXPECT_EQ(plans[2]->rows[0].position, 4u);
  EXPECT_EQ(sample(2).n_history, 4u);
}

TEST_F(SampledRows, BringNothingWherePenaltiesDoNotCount) {
  make({.depth = 2}, sampling_model());
  cached_len = 4;
  admit(sampled(1, 6, 10));
  EXPECT_EQ(sample(0).n_history, 0u);
}

TEST_F(SampledRows, ARefusedLaunchBringsItsHistoryAgain) {
  make({.depth = 2}, sampling_model());
  cached_len = 4;
  Request q = sampled(1, 6, 10);
  q.sampling.presence_penalty = 0.5f;
  admit(q);
  DeviceError none{DeviceError::Phase::launch, ErrorCode::ring_exhausted, 0, 0, "so"};
  send(Accepted{{}, plans[0]->ticket, none, facts});
  ASSERT_GE(plans.size(), 2u);
  EXPECT_EQ(sample(1).n_history, 4u);
}

TEST_F(SampledRows, WaitForTheNextStepWhereTheirListsDoNotFitIntoThisOne) {
  make({.depth = 1}, sampling_model());
  for (std::uint64_t client = 1; client <= 3; ++client) {
    Request q = sampled(client, 2, 4);
    q.sampling.logit_bias.assign(8, {3, 1.0f});  // 16 words of 40
    admit(q);
  }
  accept();
  settle(1, 5);  // the first one's own step
  ASSERT_EQ(plans.size(), 2u);
  EXPECT_EQ(plans[1]->samples.size(), 2u);
  EXPECT_EQ(plans[1]->biases.size(), 16u);
  accept();
  settle(2, 5);
  EXPECT_EQ(plans[2]->samples.size(), 2u) << "the one that was left out, and one more";
}

TEST_F(SampledRows, AClosedThinkingBlockBarsItsTwoIdsFromThenOn) {
  make({.depth = 2}, sampling_model());
  Request q = sampled(1, 3, 10);
  q.think = Think{50, 51, 52};
  admit(q);
  accept();
  accept();
  EXPECT_EQ(sample(1).n_bars, 0u);
  settle(1, 50);  // it closes; the row in flight does not know
  settle(2, 60, 50);
  EXPECT_EQ(tokens[1], (std::vector<Token>{50})) << "the row that barred nothing is not committed";
  const StepPlan& again = *plans.back();
  EXPECT_EQ(again.rows[0].epoch, 1u);
  ASSERT_EQ(again.samples[0].n_bars, 2u);
  EXPECT_EQ(again.tokens[again.samples[0].bar_begin], 51u);
}

TEST_F(SampledRows, MoreThanTwoBarredIdsAreTheDevicesToo) {
  make({.depth = 2}, sampling_model());
  Request q = request(1, 3, 10);
  q.stop.min_tokens = 1;
  q.stop.stop_token_ids = {8, 9};
  admit(q);
  EXPECT_EQ(plans[0]->rows[0].readback, RowReadback::sample);
  EXPECT_EQ(sample(0).temperature, 0.0f);
  EXPECT_EQ(sample(0).n_bars, 3u);
  accept();
  EXPECT_EQ(plans[1]->rows[0].readback, RowReadback::argmax) << "min_tokens is reached";
}

TEST_F(SampledRows, LogProbabilitiesComeBackWithTheRow) {
  make({.depth = 1}, sampling_model());
  Request q = sampled(1, 3, 10);
  admit(sampled(2, 3, 10));
  q.sampling.logprobs = 2;
  accept();
  admit(q);
  settle(1, 5);
  accept();
  settle(2, 6);
  accept();
  ASSERT_EQ(logprobs[1].size(), 1u);
  EXPECT_LT(logprobs[1][0], 0.0f);
  EXPECT_TRUE(std::isnan(logprobs[2][1])) << "the other one asked for none";
}

TEST_F(SampledRows, SoManyBiasesAreTheSamplers) {
  ModelInfo m = sampling_model();
  m.vocab_size = 1000;
  make({.depth = 2}, m);
  Request q = sampled(1, 3, 10);
  q.sampling.logit_bias.assign(SamplingParams::kMaxDeviceBiases + 1, {3, 1.0f});
  admit(q);
  EXPECT_EQ(plans[0]->rows[0].readback, RowReadback::logits);
  accept();
  EXPECT_EQ(plans.size(), 1u);
}

}  // namespace
}  // namespace troupe::actors
