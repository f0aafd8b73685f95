// Steps of prefill on a stream of their own, through the whole runtime: the tokens are those of one stream at every depth, whatever is
// preempted and spilled, and a prompt's step that is not done keeps nobody else waiting.
#include "actors/trace/check.h"
#include "actors/trace/replay.h"
#include "tests/actors/polling_driver.h"
#include "tests/actors/rig.h"
#include "tests/actors/spill/folder.h"

namespace troupe {
namespace {

using namespace std::chrono_literals;
using test::make_request;
using test::make_rig;
using test::Rig;

constexpr std::uint64_t kClients = 24;

device::ScriptedOptions script(bool prefill_stream = true) {
  device::ScriptedOptions s;
  s.block_size = 4;
  s.eos_per_mille = 10;
  s.prefill_stream = prefill_stream;
  return s;
}

Request request(std::uint64_t client, const device::ScriptedOptions& s) {
  Request r = make_request(client, 1 + client * 13 % 90, 10 + client % 40, s);
  if (client % 4 == 0) {
    r.sampling.temperature = 0.8f;
    r.sampling.seed = client;
  }
  return r;
}

RuntimeOptions options(std::uint32_t depth) {
  RuntimeOptions o;
  o.depth = depth;
  o.streams = 3;
  o.max_batch = 8;
  o.step_tokens = 32;
  return o;
}

std::map<std::uint64_t, std::vector<Token>> streams_of(Rig& rig, const device::ScriptedOptions& s) {
  for (std::uint64_t client = 1; client <= kClients; ++client)
    EXPECT_TRUE(rig.runtime->submit(request(client, s), rig.clients->callback(client)));
  rig.clients->wait_ended(kClients);
  std::map<std::uint64_t, std::vector<Token>> out;
  for (const auto& [client, record] : rig.clients->all()) {
    EXPECT_EQ(record.wrong, "");
    EXPECT_NE(record.finish->reason, FinishReason::error) << record.finish->error.what;
    out[client] = record.tokens;
  }
  return out;
}

std::map<std::uint64_t, std::vector<Token>> one_stream() {
  RuntimeOptions o = options(1);
  o.streams = 1;
  Rig rig = make_rig(o, script());
  auto out = streams_of(rig, script());
  EXPECT_EQ(rig.runtime->metrics().scheduler.prefill_steps, 0u);
  EXPECT_TRUE(rig.runtime->stop());
  return out;
}

class PrefillStream : public testing::TestWithParam<std::uint32_t> {};

TEST_P(PrefillStream, TheTokensAreThoseOfOneStream) {
  const auto want = one_stream();
  for (const auto& [client, tokens] : want) {
    if (client % 4 != 0) {
      EXPECT_EQ(tokens, test::expected(request(client, script()), script())) << client;
    }
  }
  RuntimeOptions o = options(GetParam());
  o.trace.file = testing::TempDir() + "/prefill" + std::to_string(GetParam()) + ".trace";
  Rig rig = make_rig(o, script());
  EXPECT_EQ(streams_of(rig, script()), want);
  const RuntimeMetrics m = rig.runtime->metrics();
  EXPECT_GT(m.scheduler.prefill_steps, kClients);
  EXPECT_LT(m.scheduler.prefill_steps, m.scheduler.steps);
  const auto stopped = rig.runtime->stop();
  EXPECT_TRUE(stopped) << stopped.error().what;

  const auto recording = actors::trace::read_recording(o.trace.file);
  ASSERT_TRUE(recording) << recording.error().what;
  if (recording.value().lost != 0)
    GTEST_SKIP() << "the machine is too busy: the recorder had no room for " << recording.value().lost << " records";
  const auto checked = actors::trace::check(recording.value());
  ASSERT_TRUE(checked) << checked.error().what;
  EXPECT_FALSE(checked.value().finding) << checked.value().finding->rule << ": " << checked.value().finding->what;
  const auto again = actors::trace::replay(recording.value());
  ASSERT_TRUE(again) << again.error().what;
  EXPECT_FALSE(again.value().difference) << again.value().difference->what;
  EXPECT_EQ(again.value().compared, again.value().recorded);
}

TEST_P(PrefillStream, AlsoWhereCompletionsArePolled) {
  Rig rig = make_rig(options(GetParam()), script(), std::make_unique<test::PollingDriver>());
  EXPECT_EQ(streams_of(rig, script()), one_stream());
  EXPECT_GT(rig.runtime->metrics().scheduler.prefill_steps, kClients);
  EXPECT_TRUE(rig.runtime->stop());
}

// Preempted requests are saved by the third stream.
TEST_P(PrefillStream, AlsoWithFewBlocksAndCopiesBeside) {
  test::Folder folder;
  auto s = script();
  s.kv_blocks = 70;
  RuntimeOptions o = options(GetParam());
  o.spill_dir = folder.path();
  o.spill_min_blocks = 1;
  Rig rig = make_rig(o, s);
  EXPECT_EQ(streams_of(rig, s), one_stream());
  const RuntimeMetrics m = rig.runtime->metrics();
  EXPECT_GT(m.scheduler.prefill_steps, kClients);
  EXPECT_GT(m.scheduler.preemptions, 0u);
  const auto stopped = rig.runtime->stop();
  EXPECT_TRUE(stopped) << stopped.error().what;
  EXPECT_EQ(folder.count(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Depths, PrefillStream, testing::Values(1, 2, 3, 4));

TEST(PrefillStream, APromptThatIsNotDoneKeepsNobodyWaiting) {
  auto s = script();
  s.faults = {{.kind = device::ScriptedFault::Kind::hang_step, .step = 1}};
  Rig rig = make_rig(options(2), s);
  const Request prompt = make_request(1, 20, 5, s);
  ASSERT_TRUE(rig.runtime->submit(prompt, rig.clients->callback(1)));
  Request decoding = make_request(2, 1, 40, s);  // one token to begin with: no chunk
  decoding.stop.ignore_eos = true;
  ASSERT_TRUE(rig.runtime->submit(decoding, rig.clients->callback(2)));
  rig.clients->wait_ended(1);
  EXPECT_EQ(rig.clients->record(2).tokens, test::expected(decoding, s));
  EXPECT_FALSE(rig.clients->record(1).finish);
  rig.model->release();
  rig.clients->wait_ended(2);
  EXPECT_EQ(rig.clients->record(1).tokens, test::expected(prompt, s));
  EXPECT_TRUE(rig.runtime->stop());
}

TEST(PrefillStream, AModelThatTakesNoneHasNone) {
  Rig rig = make_rig(options(2), script(false));
  ASSERT_TRUE(rig.runtime->submit(request(5, script()), rig.clients->callback(5)));
  rig.clients->wait_ended(1);
  EXPECT_EQ(rig.runtime->metrics().scheduler.prefill_steps, 0u);
  EXPECT_EQ(rig.driver->usage().streams, 1u);
  EXPECT_TRUE(rig.runtime->stop());
}

// A step that fails on the prefill stream is done once more, and costs nobody else anything.
TEST(PrefillStream, AFailedStepFailsNobodyElse) {
  auto s = script();
  s.faults = {{.kind = device::ScriptedFault::Kind::fail_step, .step = 1}, {.kind = device::ScriptedFault::Kind::fail_step, .step = 5}};
  Rig rig = make_rig(options(3), s);
  EXPECT_EQ(streams_of(rig, s), one_stream());
  EXPECT_GT(rig.runtime->metrics().scheduler.retries, 0u);
  EXPECT_TRUE(rig.runtime->stop());
}

}  // namespace
}  // namespace troupe
