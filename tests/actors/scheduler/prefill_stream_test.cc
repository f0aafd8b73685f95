// Two pipelines, where prefill has a stream of its own: chunks make steps of their own, each stream has its depth, steps of the two
// settle in any order, and a sequence is on one stream at a time (R12).
#include "tests/actors/scheduler/rig.h"

namespace troupe::actors {
namespace {

class SchedulerPrefillStream : public SchedulerTest {
 protected:
  void begin(std::uint32_t depth, std::uint32_t step_tokens = 8) {
    SchedulerConfig config;
    config.depth = depth;
    config.step_tokens = step_tokens;
    config.prefill_stream = true;
    make(config);
  }
  // Accepts every launch; what is in flight then.
  void accept_all() {
    for (std::size_t accepted = 0; accepted != plans.size();) {
      accepted = plans.size();
      if (answered == accepted) break;
      answered = accepted;
      accept();
    }
  }
  const StepPlan& last() const { return *plans.back(); }
  std::size_t answered = 0;
};

TEST_F(SchedulerPrefillStream, ChunksGoAsideAndSingleTokensDoNot) {
  begin(1);
  admit(request(1, 5, 4));
  ASSERT_EQ(plans.size(), 1u);
  EXPECT_EQ(last().stream, kPrefillStream);
  accept_all();
  settle(1, 9);
  ASSERT_EQ(plans.size(), 2u);
  EXPECT_EQ(last().stream, kComputeStream);
  EXPECT_EQ(last().rows[0].position, 5u);
  EXPECT_EQ(core->stats().prefill_steps, 1u);
}

TEST_F(SchedulerPrefillStream, EachStreamHasItsDepth) {
  begin(2);
  admit(request(1, 1, 20));  // one token to begin with: no chunk
  accept_all();
  ASSERT_EQ(plans.size(), 2u);
  EXPECT_EQ(plans[0]->stream, kComputeStream);
  EXPECT_EQ(plans[1]->stream, kComputeStream);
  EXPECT_TRUE(plans[1]->rows[0].source.is_feed());
  admit(request(2, 30, 4));
  accept_all();
  ASSERT_EQ(plans.size(), 4u) << "two steps of 8 tokens beside them";
  EXPECT_EQ(plans[2]->stream, kPrefillStream);
  EXPECT_EQ(plans[3]->stream, kPrefillStream);
  EXPECT_EQ(plans[3]->rows[0].position, 8u);
  EXPECT_EQ(core->in_flight(), 4u);
}

TEST_F(SchedulerPrefillStream, DecodingGoesOnWhileAPromptIsNotDone) {
  begin(2, 32);
  admit(request(1, 1, 12));
  accept_all();
  admit(request(2, 20, 4));
  accept_all();
  ASSERT_EQ(plans.size(), 3u);
  EXPECT_EQ(plans[2]->stream, kPrefillStream);
  for (const std::uint64_t step : {1u, 2u, 4u, 5u, 6u}) {  // 3 is the prompt's
    settle(step, 9, 9);
    accept_all();
    EXPECT_EQ(plans.size(), step == 1 ? 4u : step == 2 ? 5u : step + 2) << step;
    EXPECT_EQ(last().rows.size(), 1u);
    EXPECT_EQ(last().stream, kComputeStream);
  }
  EXPECT_EQ(tokens[1].size(), 5u);
  EXPECT_EQ(tokens[2].size(), 0u);
  settle(3, 7);
  EXPECT_EQ(tokens[2].size(), 1u);
  settle(7, 9, 9);
  accept_all();
  EXPECT_EQ(last().rows.size(), 2u) << "the prompt's request has joined";
}

TEST_F(SchedulerPrefillStream, TheFirstRowBehindAPromptWaitsForIt) {
  begin(4, 32);
  admit(request(1, 6, 4));
  accept_all();
  EXPECT_EQ(plans.size(), 1u) << "the next row would be fed from a step of another stream";
  settle(1, 9);
  accept_all();
  EXPECT_EQ(plans.size(), 4u);
  EXPECT_FALSE(plans[1]->rows[0].source.is_feed());
  EXPECT_TRUE(plans[2]->rows[0].source.is_feed());
}

TEST_F(SchedulerPrefillStream, ALastChunkOfOneTokenStaysBehindTheOthers) {
  begin(2);
  admit(request(1, 9, 4));
  accept_all();
  ASSERT_EQ(plans.size(), 2u);
  EXPECT_EQ(plans[1]->rows[0].n_tokens, 1u);
  EXPECT_EQ(plans[1]->stream, kPrefillStream) << "the step before it names the sequence";
}

TEST_F(SchedulerPrefillStream, ARedoStaysBehindWhatWasDisowned) {
  begin(3);
  admit(request(1, 10, 4));
  accept_all();
  ASSERT_EQ(plans.size(), 2u);
  StepResult failed;
  failed.ticket = plans[0]->ticket;
  failed.error = {DeviceError::Phase::forward, ErrorCode::device_failed, 0, 0, "a test"};
  send(Settled{{}, Shared<StepResult>::of(failed), facts});
  accept_all();
  ASSERT_EQ(plans.size(), 3u) << "once more from the beginning, behind the disowned step";
  EXPECT_EQ(plans[2]->rows[0].position, 0u);
  EXPECT_EQ(plans[2]->rows[0].epoch, 1u);
  EXPECT_EQ(plans[2]->stream, kPrefillStream);
}

TEST_F(SchedulerPrefillStream, EffectsDoNotWaitForAPrompt) {
  begin(1, 32);
  admit(request(1, 1, 1));
  accept_all();
  admit(request(2, 20, 4));
  accept_all();
  ASSERT_EQ(plans.size(), 2u);
  settle(1, 9);
  EXPECT_EQ(ends[1], FinishReason::length);
  EXPECT_FALSE(applied.empty()) << "the end of a request is told at once: its blocks may be wanted";
}

TEST_F(SchedulerPrefillStream, NegativeControlJoinsEarly) {
  SchedulerConfig config;
  config.depth = 2;
  config.prefill_stream = true;
  config.fault = SchedulerFault::join_early;
  core.emplace(config, model());
  SchedulerOutbox sink;
  core->on(Admit{{}, {1, 1}, Shared<Request>::of(request(1, 6, 4)), 5}, 1, sink);
  sink.clear();
  Opened o;
  o.request = {1, 1};
  o.seq = {1, 1};
  o.facts = facts;
  core->on(o, 1, sink);
  sink.clear();
  core->on(Accepted{{}, {1, 1}, {}, facts}, 1, sink);
  ASSERT_FALSE(sink.empty());
  const auto* launch = std::get_if<Launch>(&sink.items()[0]);
  ASSERT_NE(launch, nullptr);
  EXPECT_EQ(launch->plan->stream, kComputeStream);
  EXPECT_NE(core->check(), "");
}

}  // namespace
}  // namespace troupe::actors
