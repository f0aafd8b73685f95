// A request that comes with output of another replica goes on behind it: nothing that its client has is given again, and what
// follows from it (text, stop strings, a closed thinking block, penalties) is as if every token had been chosen here. And a
// replica that is lost leaves its requests to the dispatcher.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "actors/scheduler/core.h"

namespace troupe::actors {
namespace {

constexpr Token kEos = 1;

// Tokens are letters: 2 = 'a', 3 = 'b', …
ModelInfo model() {
  ModelInfo m;
  m.vocab_size = 28;
  m.context_length = 64;
  m.block_size = 4;
  m.kv_blocks = 32;
  m.n_slots = 8;
  m.max_depth = 2;
  m.max_rows = 8;
  m.max_step_tokens = 64;
  m.max_logits_rows = 2;
  m.supports_device_token_feed = true;
  m.eos_ids = {kEos};
  TokenTable t;
  t.offsets = {0, 0};
  t.special.assign(28, 0);
  for (char c = 'a'; c <= 'z'; ++c) t.bytes += c, t.offsets.push_back(static_cast<std::uint32_t>(t.bytes.size() - 1));
  t.offsets.push_back(26);
  m.tokens = Shared<TokenTable>::of(std::move(t));
  return m;
}
Token letter(char c) { return static_cast<Token>(c - 'a' + 2); }
std::vector<Token> letters(const std::string& text) {
  std::vector<Token> out;
  for (const char c : text) out.push_back(letter(c));
  return out;
}

class TakeOver : public testing::Test {
 protected:
  TakeOver() {
    SchedulerConfig config;
    config.depth = 1;
    config.replica = {2, 3};
    config.movable = true;
    core.emplace(config, model());
    request.client = 7;
    request.prompt = {4, 5, 6};
    request.stop.max_tokens = 10;
  }
  template <class M>
  void send(const M& m, TimeNs now = 1) {
    core->on(m, now, out);
    core->deliver(out);
    EXPECT_EQ(core->check(), "");
    out.drain([&](auto&& x) {
      using T = std::decay_t<decltype(x)>;
      if constexpr (std::is_same_v<T, Open>) open = x;
      if constexpr (std::is_same_v<T, Launch>) plan = x.plan;
      if constexpr (std::is_same_v<T, Sample>) sample = x.batch;
      if constexpr (std::is_same_v<T, ReplicaLost>) lost.push_back(x);
      if constexpr (std::is_same_v<T, ReplicaReport>) report = x;
      if constexpr (std::is_same_v<T, Ended>) ended.insert(ended.end(), x.requests.begin(), x.requests.end());
      if constexpr (std::is_same_v<T, Deliver>) {
        for (const TokenEvent& e : x.batch->events) {
          events.push_back(e);
          text += x.batch->text.substr(e.text_begin, e.text_size);
        }
        for (const Finish& f : x.batch->finishes) {
          finish = f;
          text += x.batch->text.substr(f.text_begin, f.text_size);
        }
      }
    });
  }
  void admit(const std::string& output, std::uint32_t attempt = 1) {
    Admit m{{}, {7, 9}, Shared<Request>::of(request), 55};
    m.replica = {2, 3};
    m.attempt = attempt;
    m.output = letters(output);
    m.other_arithmetic = attempt > 1;
    send(m);
  }
  void opened() { send(Opened{{}, {7, 9}, {3, 1}, 0, 0, {}, facts(), {}, false}); }
  void settle(char c) {
    StepResult r;
    r.ticket = plan->ticket;
    for (const Row& row : plan->rows) r.rows.push_back({0, row.readback == RowReadback::none ? 0u : letter(c), CellStatus::ok, 0});
    send(Accepted{{}, plan->ticket, {}, facts()});
    send(Settled{{}, Shared<StepResult>::of(std::move(r)), facts()});
    send(Tick{});  // the next message, at which the token goes out at the latest
  }
  static DeviceFacts facts() {
    DeviceFacts f;
    f.total_blocks = f.free_blocks = 32;
    f.total_slots = f.free_slots = 8;
    return f;
  }

  Request request;
  std::optional<SchedulerCore> core;
  SchedulerOutbox out;
  std::optional<Open> open;
  Shared<StepPlan> plan;
  Shared<SampleBatch> sample;
  std::vector<TokenEvent> events;
  std::optional<Finish> finish;
  std::string text;
  std::vector<Placed> ended;
  std::vector<ReplicaLost> lost;
  std::optional<ReplicaReport> report;
};

TEST_F(TakeOver, ThePromptAndTheOutputAreComputedAndTheNextTokenIsTheFirstThatIsGiven) {
  admit("abc", 2);
  EXPECT_EQ(open->n_tokens, 6u);
  EXPECT_EQ(open->output, letters("abc"));
  opened();
  ASSERT_EQ(plan->rows.size(), 1u);
  EXPECT_EQ(plan->rows[0].n_tokens, 6u);
  EXPECT_EQ(plan->tokens, (std::vector<Token>{4, 5, 6, letter('a'), letter('b'), letter('c')}));
  settle('d');
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].index, 3u);
  EXPECT_EQ(events[0].attempt, 2u);
  EXPECT_EQ(text, "d");
  for (const char c : std::string("efghij")) settle(c);
  ASSERT_TRUE(finish);
  EXPECT_EQ(finish->reason, FinishReason::length);
  EXPECT_EQ(finish->usage.completion_tokens, 10u);
  EXPECT_EQ(finish->attempt, 2u);
  EXPECT_TRUE(finish->other_arithmetic);
  EXPECT_EQ(ended, (std::vector<Placed>{{{7, 9}, 2}}));
}

TEST_F(TakeOver, AStopStringThatBeganElsewhereEndsHere) {
  request.stop.stop = {"cde"};
  admit("abcd");  // the client has "ab": "cd" was held back
  opened();
  settle('e');
  EXPECT_EQ(finish->reason, FinishReason::stop);
  EXPECT_EQ(text, "");
}

TEST_F(TakeOver, TextThatWasHeldBackElsewhereComesHere) {
  request.stop.stop = {"cde"};
  admit("abcd");
  opened();
  settle('x');
  EXPECT_EQ(text, "cdx");
}

TEST_F(TakeOver, AThinkingBlockThatWasClosedElsewhereStaysClosed) {
  request.think = Think{letter('b'), letter('p'), letter('q')};
  admit("ab");
  opened();
  EXPECT_EQ(plan->rows[0].mask.a, letter('p'));
  EXPECT_EQ(plan->rows[0].mask.b, letter('q'));
}

TEST_F(TakeOver, TheSamplerCountsAllOfIt) {
  request.sampling.temperature = 1;
  request.sampling.frequency_penalty = 0.5f;
  admit("abc");
  opened();
  ASSERT_EQ(plan->rows[0].readback, RowReadback::logits);
  StepResult r;
  r.ticket = plan->ticket;
  r.rows.push_back({0, 0, CellStatus::ok, 0});
  r.logits.n_rows = 1;
  send(Accepted{{}, plan->ticket, {}, facts()});
  send(Settled{{}, Shared<StepResult>::of(std::move(r)), facts()});
  ASSERT_TRUE(sample);
  const SampleRow& row = sample->rows.at(0);
  EXPECT_TRUE(row.fresh);
  EXPECT_EQ(row.output_index, 3u);  // where the random numbers go on
  EXPECT_EQ(row.seed, 55u);
  EXPECT_EQ(std::vector<Token>(sample->tokens.begin() + row.new_begin, sample->tokens.begin() + row.new_begin + row.new_size),
            letters("abc"));
}

TEST_F(TakeOver, OutputThatWasWholeEndsAtOnce) {
  request.stop.max_tokens = 3;
  admit("abc");
  EXPECT_FALSE(open);
  EXPECT_EQ(finish->reason, FinishReason::length);
  EXPECT_EQ(finish->usage.completion_tokens, 3u);
  EXPECT_TRUE(events.empty());
}

TEST_F(TakeOver, OutputThatHadStoppedEndsAtOnce) {
  request.stop.stop_token_ids = {letter('c')};
  admit("abc");
  EXPECT_EQ(finish->reason, FinishReason::stop);
}

TEST_F(TakeOver, ItsDeadlineIsThatOfItsWholeLife) {
  request.deadline = TimeNs{1000};
  Admit m{{}, {7, 9}, Shared<Request>::of(request), 55};
  m.waited = 400;
  m.attempt = 1;
  m.output = letters("a");
  send(m, 10'000);
  send(Tick{}, 10'599);
  EXPECT_FALSE(finish);
  send(Tick{}, 10'600);
  EXPECT_EQ(finish->reason, FinishReason::deadline);
}

TEST_F(TakeOver, ALostDeviceLeavesItsRequestsToTheDispatcher) {
  admit("", 0);
  opened();
  settle('a');
  StepResult r;
  r.ticket = plan->ticket;
  r.error = {DeviceError::Phase::readback, ErrorCode::device_lost, 0, 0, "gone"};
  send(Accepted{{}, plan->ticket, {}, facts()});
  send(Settled{{}, Shared<StepResult>::of(std::move(r)), facts()});
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].replica, (ReplicaRef{2, 3}));
  EXPECT_EQ(lost[0].error.code, ErrorCode::device_lost);
  EXPECT_FALSE(finish);
  EXPECT_TRUE(ended.empty());
  // Nothing more is done, whatever comes.
  admit("", 0);
  send(CancelRequest{{}, {7, 9}});
  send(Tick{}, 1'000'000);
  send(Drain{});
  EXPECT_EQ(lost.size(), 1u);
  EXPECT_FALSE(finish);
  // It is stopped: what nobody wants any more is over.
  send(Halt{{}, {ErrorCode::closed, "stopped"}});
  ASSERT_TRUE(finish);
  EXPECT_EQ(finish->error.code, ErrorCode::closed);
}

TEST_F(TakeOver, AReportSaysWhatIsThere) {
  admit("ab");
  opened();
  settle('c');
  send(AskReport{{}, {2, 3}}, 101);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->replica, (ReplicaRef{2, 3}));
  EXPECT_EQ(report->running, 1u);
  EXPECT_EQ(report->settled, 1u);
  EXPECT_EQ(report->tokens, 1u);
  EXPECT_EQ(report->outstanding, 13u - 5u);  // of 3 + 10 positions 5 are settled
  EXPECT_EQ(report->since_settled, 100);
}

}  // namespace
}  // namespace troupe::actors
