// Plans with rows that the device samples.
#include "tests/actors/router/rig.h"

namespace troupe::actors {
namespace {

ModelInfo sampling_model() {
  ModelInfo m = small_model();
  m.supports_device_sampling = true;
  m.max_sample_words = 10;
  return m;
}

class SampleRows : public RouterTest {
 protected:
  explicit SampleRows(const ModelInfo& model = sampling_model()) : RouterTest(model) {}
  // Rows of two sequences at positions 4 (three tokens, sampled) and 0 (greedy).
  StepPlan plan(std::uint64_t step) {
    StepPlan p;
    p.ticket = {1, step};
    p.rows = {host_row(a, 4, 3), host_row(b, 0)};
    p.rows[0].readback = RowReadback::sample;
    p.tokens.assign(16, 7);
    p.biases.assign(2, {5, 1.0f});
    RowSample s;
    s.row = 0;
    s.seed = 11;
    s.n_biases = 2;
    s.bar_begin = 12;
    s.n_bars = 1;
    s.history_begin = 3;
    s.n_history = 4;
    p.samples = {s};
    return p;
  }
  ErrorCode take(const StepPlan& p) {
    send(Launch{{}, Shared<StepPlan>::of(p), true});
    return accepted->error.code;
  }
  void SetUp() override {
    a = open(1), b = open(2);
    ASSERT_EQ(launch(1, {host_row(a, 0, 4)}), ErrorCode::none);
    complete(1);
  }
  SeqId a, b;
};

TEST_F(SampleRows, GoToTheDeviceAsTheyAre) {
  StepPlan p = plan(2);
  p.samples[0].logprobs_row = 0;
  p.samples[0].n_best = 3;
  ASSERT_EQ(take(p), ErrorCode::none);
  const LaunchedStep& step = *enqueued.back();
  ASSERT_EQ(step.samples.size(), 1u);
  EXPECT_EQ(step.samples[0].seed, 11u);
  EXPECT_EQ(step.samples[0].logprobs_row, 0u);
  EXPECT_EQ(step.n_logprobs, 1u);
  EXPECT_EQ(step.n_logits, 0u);
  EXPECT_TRUE(step.rows[0].sampled && step.rows[0].wants_token);
  EXPECT_FALSE(step.rows[1].sampled);
  ASSERT_EQ(step.biases.size(), 2u);
  EXPECT_EQ(step.biases[1].id, 5u);
}

TEST_F(SampleRows, PlacesOfLogProbabilitiesAreCountedOverThoseThatWantThem) {
  StepPlan p = plan(2);
  p.rows[1].readback = RowReadback::sample;
  RowSample second;
  second.row = 1;
  second.logprobs_row = 0;  // wanted: which place is the router's to say
  p.samples.push_back(second);
  ASSERT_EQ(take(p), ErrorCode::none);
  EXPECT_EQ(enqueued.back()->samples[0].logprobs_row, RowSample::kNone);
  EXPECT_EQ(enqueued.back()->samples[1].logprobs_row, 0u);
  EXPECT_EQ(enqueued.back()->n_logprobs, 1u);
}

TEST_F(SampleRows, AreRefusedWhereTheirListsLieOutsideOrTheirRowIsAnother) {
  std::uint64_t step = 2;
  const auto refused = [&](auto change) {
    StepPlan p = plan(step++);
    change(p);
    return take(p) == ErrorCode::bad_plan;
  };
  EXPECT_TRUE(refused([](StepPlan& p) { p.samples.clear(); }));
  EXPECT_TRUE(refused([](StepPlan& p) { p.samples.push_back(p.samples[0]); }));
  EXPECT_TRUE(refused([](StepPlan& p) { p.samples[0].row = 1; }));
  EXPECT_TRUE(refused([](StepPlan& p) { p.samples[0].row = 9; }));
  EXPECT_TRUE(refused([](StepPlan& p) { p.samples[0].bias_begin = 1; }));
  EXPECT_TRUE(refused([](StepPlan& p) { p.samples[0].n_biases = 0xFFFFFFFF; }));
  EXPECT_TRUE(refused([](StepPlan& p) { p.samples[0].bar_begin = 16; }));
  EXPECT_TRUE(refused([](StepPlan& p) { p.samples[0].history_begin = 13; }));
  EXPECT_TRUE(refused([](StepPlan& p) { p.samples[0].n_history = 5; })) << "more than what is before the row";
  EXPECT_TRUE(refused([](StepPlan& p) { p.samples[0].n_bars = 3; })) << "eleven words";
  EXPECT_FALSE(refused([](StepPlan& p) { p.samples[0].n_bars = 2; })) << "ten words";
}

class NoSampleRows : public SampleRows {
 protected:
  NoSampleRows() : SampleRows(small_model()) {}
};

TEST_F(NoSampleRows, AreRefusedWhereTheDeviceDoesNotSample) { EXPECT_EQ(take(plan(2)), ErrorCode::bad_plan); }

}  // namespace
}  // namespace troupe::actors
