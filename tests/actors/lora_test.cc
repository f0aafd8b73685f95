// Adapters through a whole runtime, on a small model and the adapters that PEFT wrote for it: what a request gets is what
// the reference (tests/golden) says of the generation that it was bound to, whatever else runs and changes meanwhile.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "device/models/load.h"
#include "tests/actors/rig.h"
#include "tests/golden/golden.h"

namespace troupe::test {
namespace {

using Kind = LoraCommand::Kind;

const std::string kFolder = "tests/golden/tiny-llama/";
std::string dir(const std::string& adapter) { return kFolder + "adapters/" + adapter; }

LoraCommand command(Kind kind, const std::string& name, const std::string& adapter = "") {
  LoraCommand c;
  c.kind = kind;
  c.name = name;
  if (!adapter.empty()) c.path = dir(adapter);
  return c;
}

class LoraRuntime : public testing::Test {
 protected:
  void start(std::uint32_t max_loras, std::uint32_t depth = 2, std::uint32_t max_rank = 16) {
    device::LoadOptions load;
    load.exact = true;
    load.threads = 1;
    load.max_loras = max_loras;
    load.max_lora_rank = max_rank;
    load.depth = depth;
    auto loaded = device::load_model(kFolder + "tiny-llama.F32.gguf", load);
    ASSERT_TRUE(loaded) << loaded.error().what;
    RuntimeOptions options;
    options.depth = depth;
    auto started = Runtime::start(options, std::move(loaded.value().driver), std::move(loaded.value().model));
    ASSERT_TRUE(started) << started.error().what;
    runtime = std::move(started).value();
  }
  void TearDown() override {
    if (!runtime) return;
    const auto stopped = runtime->stop();
    EXPECT_TRUE(stopped) << stopped.error().what;
    for (const auto& [client, record] : clients.all()) EXPECT_EQ(record.wrong, "") << client;
  }
  // "" = the base model.
  const std::vector<golden::Case>& cases(const std::string& adapter) {
    auto& c = cases_[adapter];
    if (c.empty()) c = golden::read_cases(adapter.empty() ? kFolder + "golden.json" : dir(adapter) + "/golden.json");
    return c;
  }
  // Submits a case's prompt under the adapter that is called `name`; its answer should be the reference's of `adapter`.
  std::uint64_t submit(const std::string& name, const std::string& adapter, std::size_t k) {
    const golden::Case& c = cases(adapter)[k];
    Request q;
    q.client = ++last_client;
    q.prompt = c.prompt;
    q.adapter = name;
    q.stop.max_tokens = static_cast<std::uint32_t>(c.greedy.size());
    q.stop.ignore_eos = true;
    const auto id = runtime->submit(std::move(q), clients.callback(last_client));
    EXPECT_TRUE(id) << id.error().what;
    expected.push_back({adapter, k});
    return last_client;
  }
  // All of them, once they have ended. Up to the first step that small differences may decide.
  void expect_golden() {
    clients.wait_ended(last_client);
    for (std::uint64_t client = 1; client <= last_client; ++client) {
      const auto& [adapter, k] = expected[client - 1];
      const golden::Case& c = cases(adapter)[k];
      const Record r = clients.record(client);
      ASSERT_TRUE(r.finish);
      EXPECT_EQ(r.finish->reason, FinishReason::length) << client << ": " << r.finish->error.what;
      std::size_t sure = 0;
      while (sure < c.greedy.size() && c.margin[sure] >= 1e-2 * c.logit_std) ++sure;
      ASSERT_GE(r.tokens.size(), sure);
      EXPECT_TRUE(std::equal(c.greedy.begin(), c.greedy.begin() + static_cast<std::ptrdiff_t>(sure), r.tokens.begin()))
          << "client " << client << ", adapter \"" << adapter << "\", case " << k;
    }
  }

  std::unique_ptr<Runtime> runtime;
  Clients clients;
  std::uint64_t last_client = 0;
  std::vector<std::pair<std::string, std::size_t>> expected;
  std::map<std::string, std::vector<golden::Case>> cases_;
};

TEST_F(LoraRuntime, ManyAdaptersAndTheBaseModelInOneBatch) {
  start(4);
  const std::vector<std::string> names{"all-r4", "qv-r8", "rslora-r16", "pattern"};
  for (const auto& name : names) {
    const auto loaded = runtime->lora(command(Kind::promote_disk, name, name));
    ASSERT_TRUE(loaded) << loaded.error().what;
  }
  for (std::size_t k = 0; k < 5; ++k) {
    submit("", "", k);
    for (const auto& name : names) submit(name, name, k);
  }
  expect_golden();
}

TEST_F(LoraRuntime, ARequestAfterACommandSeesItsOutcome) {
  start(2);
  ASSERT_TRUE(runtime->lora(command(Kind::promote_disk, "pirate", "all-r4"), [](const LoraAnswer&) {}));
  submit("pirate", "all-r4", 1);  // not waited for: it waits itself
  ASSERT_TRUE(runtime->lora(command(Kind::promote_disk, "pirate", "qv-r8"), [](const LoraAnswer&) {}));
  submit("pirate", "qv-r8", 1);  // the same prompt, and no block of the first one's prefix
  submit("pirate", "qv-r8", 2);
  ASSERT_TRUE(runtime->lora(command(Kind::rotate, "pirate"), [](const LoraAnswer&) {}));
  submit("", "qv-r8", 3);
  ASSERT_TRUE(runtime->lora(command(Kind::rotate, ""), [](const LoraAnswer&) {}));
  submit("", "", 3);
  expect_golden();
}

// The queue never empties while adapters are loaded, loaded again, rotated to and unloaded.
TEST_F(LoraRuntime, CommandsUnderASteadyStreamOfRequests) {
  start(2);
  const std::vector<std::string> files{"all-r4", "qv-r8"};
  ASSERT_TRUE(runtime->lora(command(Kind::promote_disk, "standing", "pattern")));
  std::size_t k = 0;
  const auto more = [&] {  // keeps about twelve in the queue
    for (int i = 0; i < 4; ++i) {
      submit("", "", k++ % 5);
      submit("standing", "pattern", k++ % 5);
    }
  };
  // One request of the base model that runs all the while: how long do others wait for their next token?
  using Clock = std::chrono::steady_clock;
  struct Bystander {
    std::atomic<bool> ended{false};
    Clock::time_point last{};
    Clock::duration gap{};
  } bystander;
  Request other;
  other.client = 1'000'000;
  other.prompt = {5};
  other.stop.max_tokens = runtime->model().context_length - 2;
  other.stop.ignore_eos = true;
  ASSERT_TRUE(runtime->submit(std::move(other), [&bystander](const RequestEvent& e) {
    const auto now = Clock::now();
    if (bystander.last != Clock::time_point{}) bystander.gap = std::max(bystander.gap, now - bystander.last);
    bystander.last = now;
    if (e.finish != nullptr) bystander.ended = true;
  }));
  more();
  TimeNs longest = 0;
  for (int round = 0; round < 6; ++round) {
    const std::string& file = files[static_cast<std::size_t>(round) % 2];
    more();
    const auto loaded = runtime->lora(command(Kind::promote_disk, "changing", file));
    ASSERT_TRUE(loaded) << loaded.error().what;
    longest = std::max(longest, loaded.value().paused_ns);
    for (std::size_t i = 0; i < 3; ++i) submit("changing", file, i);
    ASSERT_TRUE(runtime->lora(command(Kind::rotate, "changing")));
    for (std::size_t i = 0; i < 3; ++i) submit("", file, i);
    ASSERT_TRUE(runtime->lora(command(Kind::rotate, "")));
    more();
    if (round % 3 == 2) {  // before its users have ended
      const auto unloaded = runtime->lora(command(Kind::unload, "changing"));
      ASSERT_TRUE(unloaded) << unloaded.error().what;
      longest = std::max(longest, unloaded.value().paused_ns);
    }
  }
  expect_golden();
  while (!bystander.ended) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::printf(
      "longest time for which admission to a scope was closed: %.2f ms; longest gap between two tokens of another request: %.2f ms\n",
      static_cast<double>(longest) / 1e6, std::chrono::duration<double, std::milli>(bystander.gap).count());
  const DeviceFacts facts = runtime->facts();
  EXPECT_EQ(facts.free_blocks + facts.cached_blocks, facts.total_blocks);
}

TEST_F(LoraRuntime, WhatCannotBeLoadedLeavesWhatWasThere) {
  start(1, 2, 8);
  ASSERT_TRUE(runtime->lora(command(Kind::promote_disk, "a", "qv-r8")));
  EXPECT_EQ(runtime->lora(command(Kind::promote_disk, "a", "rslora-r16")).error().code, ErrorCode::rank_too_large);
  EXPECT_EQ(runtime->lora(command(Kind::promote_disk, "a", "nothing-here")).error().code, ErrorCode::bad_adapter);
  LoraCommand slot = command(Kind::load_into_slot, "b", "nothing-here");
  slot.slot = 1;
  EXPECT_EQ(runtime->lora(slot).error().code, ErrorCode::bad_adapter);
  EXPECT_EQ(runtime->lora(command(Kind::promote, "c")).error().code, ErrorCode::no_such_peer);
  EXPECT_EQ(runtime->lora(command(Kind::unload, "c")).error().code, ErrorCode::unknown_adapter);
  submit("a", "qv-r8", 2);
  expect_golden();
  const auto list = runtime->lora(command(Kind::list, ""));
  ASSERT_TRUE(list);
  ASSERT_EQ(list.value().adapters.size(), 1u);
  EXPECT_EQ(list.value().adapters[0].name, "a");
}

TEST_F(LoraRuntime, ARequestForAnAdapterThatIsNotThereEndsWithUnknownAdapter) {
  start(1);
  Request q;
  q.client = 1;
  q.prompt = {1, 2};
  q.adapter = "nobody";
  ASSERT_TRUE(runtime->submit(std::move(q), clients.callback(1)));
  clients.wait_ended(1);
  EXPECT_EQ(clients.record(1).finish->error.code, ErrorCode::unknown_adapter);
}

TEST_F(LoraRuntime, UnloadPreemptsUsersThatDoNotEnd) {
  start(1);
  ASSERT_TRUE(runtime->lora(command(Kind::promote_disk, "a", "all-r4")));
  Request q;
  q.client = 1;
  q.prompt = cases("all-r4")[1].prompt;
  q.adapter = "a";
  q.stop.ignore_eos = true;
  const std::uint32_t context = runtime->model().context_length;
  q.stop.max_tokens = context - static_cast<std::uint32_t>(q.prompt.size()) - 1;
  ASSERT_TRUE(runtime->submit(std::move(q), clients.callback(1)));
  clients.wait_tokens(1, 1);
  LoraCommand unload = command(Kind::unload, "a");
  unload.max_wait = 1;
  const auto timed_out = runtime->lora(unload);
  if (!timed_out) {  // it may have ended by itself
    EXPECT_EQ(timed_out.error().code, ErrorCode::timed_out);
    unload.at_bound = LoraCommand::AtBound::preempt;
    const auto done = runtime->lora(unload);
    ASSERT_TRUE(done) << done.error().what;
    clients.wait_ended(1);
    const Finish finish = *clients.record(1).finish;
    EXPECT_TRUE(finish.reason == FinishReason::length || finish.error.code == ErrorCode::adapter_gone) << finish.error.what;
  }
  clients.wait_ended(1);
}

TEST_F(LoraRuntime, WithoutRoomForAdapters) {
  start(0);
  EXPECT_EQ(runtime->lora(command(Kind::promote_disk, "a", "all-r4")).error().code, ErrorCode::unsupported);
  Request q;
  q.client = 1;
  q.prompt = {1, 2};
  q.adapter = "a";
  EXPECT_EQ(runtime->submit(std::move(q), clients.callback(1)).error().code, ErrorCode::not_found);
}

TEST_F(LoraRuntime, AStopAnswersTheCommandsThatWait) {
  start(1);
  std::atomic<int> answered{0};
  for (int i = 0; i < 8; ++i) {
    (void)runtime->lora(command(Kind::promote_disk, "a", "all-r4"), [&](const LoraAnswer&) { ++answered; });
  }
  ASSERT_TRUE(runtime->stop());
  EXPECT_EQ(answered.load(), 8);
  EXPECT_EQ(runtime->lora(command(Kind::list, "")).error().code, ErrorCode::closed);
}

}  // namespace
}  // namespace troupe::test
