// A runtime's recording: whole, right by the rules, and replayed to the last message.
#include <filesystem>
#include <map>
#include <set>

#include "actors/trace/check.h"
#include "actors/trace/replay.h"
#include "tests/actors/rig.h"

namespace troupe {
namespace {

using actors::trace::check;
using actors::trace::read_recording;
using actors::trace::replay;
using test::make_request;
using test::make_rig;
using test::Rig;

std::string temporary(const std::string& name) { return testing::TempDir() + "/" + name; }

// Greedy, sampled, stopped, cancelled and late requests, more than run at a time, over a small pool.
void live(Rig& rig, const device::ScriptedOptions& script, std::uint64_t n) {
  for (std::uint64_t client = 1; client <= n; ++client) {
    Request r = make_request(client, 3 + client % 9, 20 + client % 30, script);
    if (client % 5 == 0) r.sampling.temperature = 0.8f;
    if (client % 7 == 0) r.stop.stop_token_ids = {1, 2, 3, 4, 5, 6, 7, 8};
    if (client % 11 == 0) r.deadline = TimeNs{2'000'000};
    ASSERT_TRUE(rig.runtime->submit(r, rig.clients->callback(client)));
    if (client % 6 == 0) rig.runtime->cancel(client - 1);
  }
  rig.clients->wait_ended(n);
}

class Trace : public testing::TestWithParam<std::uint32_t> {};

TEST_P(Trace, AFileHoldsEveryMessageAndTheCoresDoItAgain) {
  device::ScriptedOptions script;
  script.kv_blocks = 40;
  RuntimeOptions options;
  options.depth = GetParam();
  options.max_batch = 8;
  options.trace.file = temporary("runtime" + std::to_string(GetParam()) + ".trace");
  Rig rig = make_rig(options, script);
  live(rig, script, 120);
  const auto stopped = rig.runtime->stop();
  EXPECT_TRUE(stopped) << stopped.error().what;
  const RuntimeMetrics metrics = rig.runtime->metrics();

  const auto recording = read_recording(options.trace.file);
  ASSERT_TRUE(recording) << recording.error().what;
  EXPECT_EQ(recording.value().damage, "");
  EXPECT_EQ(recording.value().cut_bytes, 0u);
  EXPECT_EQ(recording.value().lost, metrics.trace_lost);
  if (recording.value().lost != 0)
    GTEST_SKIP() << "the machine is too busy: the recorder had no room for " << recording.value().lost << " records";
  const auto checked = check(recording.value());
  ASSERT_TRUE(checked) << checked.error().what;
  EXPECT_FALSE(checked.value().finding) << checked.value().finding->rule << ": " << checked.value().finding->what;
  EXPECT_EQ(checked.value().note, "");
  EXPECT_EQ(checked.value().requests, 120u);
  std::uint64_t tokens = 0;
  for (const auto& [client, record] : rig.clients->all()) tokens += record.tokens.size();
  EXPECT_EQ(checked.value().tokens, tokens);
  EXPECT_GE(checked.value().messages, metrics.messages);
  const auto again = replay(recording.value());
  ASSERT_TRUE(again) << again.error().what;
  EXPECT_FALSE(again.value().difference) << again.value().difference->what;
  EXPECT_EQ(again.value().note, "");
  EXPECT_EQ(again.value().compared, again.value().recorded);
  EXPECT_GT(again.value().compared, 500u);
}

INSTANTIATE_TEST_SUITE_P(Depths, Trace, testing::Values(1, 2, 3));

TEST(Trace, ACutFileIsReplayedUpToTheCut) {
  device::ScriptedOptions script;
  RuntimeOptions options;
  options.trace.file = temporary("cut.trace");
  Rig rig = make_rig(options, script);
  live(rig, script, 20);
  ASSERT_TRUE(rig.runtime->stop());
  auto bytes = actors::trace::read_file(options.trace.file);
  ASSERT_TRUE(bytes);
  std::uint64_t handled = 0;
  for (const int tenth : {5, 8, 10}) {
    const auto part = actors::trace::parse_recording(bytes.value().data(), bytes.value().size() * static_cast<std::size_t>(tenth) / 10);
    ASSERT_TRUE(part);
    const auto again = replay(part.value());
    ASSERT_TRUE(again) << again.error().what;
    EXPECT_FALSE(again.value().difference) << again.value().difference->what;
    EXPECT_GE(again.value().handled, handled);
    handled = again.value().handled;
  }
  EXPECT_GT(handled, 100u);
}

TEST(Trace, ARedactedFileHasNoIdsAndStillShowsTheProtocol) {
  device::ScriptedOptions script;
  RuntimeOptions options;
  options.trace.file = temporary("redacted.trace");
  options.trace.redact = true;
  Rig rig = make_rig(options, script);
  live(rig, script, 20);
  ASSERT_TRUE(rig.runtime->stop());
  const auto recording = read_recording(options.trace.file);
  ASSERT_TRUE(recording);
  std::uint64_t prompts = 0, rows = 0;
  std::map<std::vector<Token>, std::set<Token>> hashes;  // of each prompt
  std::set<Token> all;
  for (const auto& e : recording.value().events) {
    if (const auto* admit = std::get_if<Admit>(&e.message)) {
      ++prompts;
      EXPECT_EQ(admit->request->prompt.size(), 3 + admit->id.client % 9);
      for (std::size_t i = 1; i < admit->request->prompt.size(); ++i) EXPECT_EQ(admit->request->prompt[i], 0u);
      hashes[make_request(admit->id.client, 3 + admit->id.client % 9, 1, script).prompt].insert(admit->request->prompt[0]);
      all.insert(admit->request->prompt[0]);
    } else if (const auto* settled = std::get_if<Settled>(&e.message)) {
      for (const Readback& rb : settled->result->rows) EXPECT_EQ(rb.id + rb.input, 0u);
      rows += settled->result->rows.size();
    }
  }
  EXPECT_EQ(prompts, 20u);
  EXPECT_GT(hashes.size(), 5u);
  EXPECT_EQ(all.size(), hashes.size()) << "equal prompts have equal hashes, others have others";
  for (const auto& [prompt, h] : hashes) EXPECT_TRUE(h.size() == 1 && h.count(prompt[0]) == 0 && h.count(0) == 0);
  EXPECT_GT(rows, 100u);
  const auto checked = check(recording.value());
  ASSERT_TRUE(checked);
  EXPECT_FALSE(checked.value().finding) << checked.value().finding->what;
  EXPECT_NE(checked.value().note, "");
  EXPECT_EQ(replay(recording.value()).error().code, ErrorCode::unsupported);
}

TEST(Trace, TheFlightRecorderIsOnByDefaultAndDumpedOnDemandAndOnALostDevice) {
  device::ScriptedOptions script;
  RuntimeOptions options;
  options.step_timeout = std::chrono::milliseconds{100};
  options.trace.flight_dir = temporary("flight");
  std::filesystem::remove_all(options.trace.flight_dir);
  std::filesystem::create_directory(options.trace.flight_dir);
  script.faults = {{device::ScriptedFault::Kind::hang_step, 60}};
  Rig rig = make_rig(options, script);
  ASSERT_TRUE(rig.runtime->submit(make_request(1, 4, 20, script), rig.clients->callback(1)));
  rig.clients->wait_ended(1);
  const std::string path = temporary("on_demand.trace");
  ASSERT_TRUE(rig.runtime->dump_trace(path));
  const auto first = read_recording(path);
  ASSERT_TRUE(first) << first.error().what;
  EXPECT_TRUE(first.value().header.from_start);
  EXPECT_FALSE(check(first.value()).value().finding);
  EXPECT_FALSE(replay(first.value()).value().difference);
  for (std::uint64_t client = 2; client <= 8; ++client) {
    ASSERT_TRUE(rig.runtime->submit(make_request(client, 4, 100, script), rig.clients->callback(client)));
  }
  rig.clients->wait_ended(8);
  rig.model->release();
  (void)rig.runtime->stop();
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(options.trace.flight_dir)) {
    ++files;
    const auto dumped = read_recording(entry.path());
    ASSERT_TRUE(dumped) << dumped.error().what;
    EXPECT_FALSE(check(dumped.value()).value().finding);
  }
  EXPECT_EQ(files, 1u);
}

}  // namespace
}  // namespace troupe
