// The whole path through the mailboxes on the scripted model: what each client gets, and that nothing is left.
#include "actors/runtime.h"

#include <future>
#include <thread>

#include "tests/actors/rig.h"

namespace troupe {
namespace {

using namespace std::chrono_literals;
using test::Clients;
using test::expected;
using test::make_request;
using test::make_rig;
using test::Record;
using test::Rig;

device::ScriptedOptions script() {
  device::ScriptedOptions s;
  s.eos_per_mille = 20;
  return s;
}

class Depth : public testing::TestWithParam<std::uint32_t> {
 protected:
  RuntimeOptions options() const {
    RuntimeOptions o;
    o.depth = GetParam();
    return o;
  }
};

TEST_P(Depth, OneRequestGetsTheModelsTokens) {
  const auto s = script();
  Rig rig = make_rig(options(), s);
  const Request r = make_request(7, 5, 40, s);
  const auto id = rig.runtime->submit(r, rig.clients->callback(7));
  ASSERT_TRUE(id) << id.error().what;
  EXPECT_EQ(id.value().client, 7u);
  rig.clients->wait_ended(1);
  const Record record = rig.clients->record(7);
  EXPECT_EQ(record.tokens, expected(r, s));
  EXPECT_EQ(record.wrong, "");
  EXPECT_EQ(record.finish->request, id.value());
  EXPECT_EQ(record.finish->usage.prompt_tokens, 5u);
  EXPECT_EQ(record.finish->usage.completion_tokens, record.tokens.size());
  EXPECT_FALSE(record.text.empty());
  const auto stopped = rig.runtime->stop();
  EXPECT_TRUE(stopped) << stopped.error().what;
}

TEST_P(Depth, SixtyFourConcurrentRequestsFromFourThreads) {
  const auto s = script();
  Rig rig = make_rig(options(), s);
  std::vector<Request> requests;
  for (std::uint64_t client = 1; client <= 64; ++client) {
    requests.push_back(make_request(client, 1 + client * 5 % 90, static_cast<std::uint32_t>(1 + client * 13 % 60), s));
  }
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = t; i < requests.size(); i += 4) {
        const auto id = rig.runtime->submit(requests[i], rig.clients->callback(requests[i].client));
        EXPECT_TRUE(id) << id.error().what;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(rig.runtime->drain(60s));
  rig.clients->wait_ended(64);
  for (const Request& r : requests) {
    const Record record = rig.clients->record(r.client);
    EXPECT_EQ(record.tokens, expected(r, s)) << "client " << r.client;
    EXPECT_EQ(record.wrong, "") << "client " << r.client;
  }
  const RuntimeMetrics m = rig.runtime->metrics();
  EXPECT_EQ(m.running + m.waiting, 0u);
  EXPECT_EQ(m.facts.free_blocks + m.facts.cached_blocks, m.facts.total_blocks);
  EXPECT_EQ(m.facts.free_slots, m.facts.total_slots);
  EXPECT_EQ(m.since_last_settled, 0);
  if (GetParam() > 1) {
    EXPECT_GT(m.scheduler.steps_ahead, 0u);
  } else {
    EXPECT_EQ(m.scheduler.steps_ahead, 0u);
  }
  const auto stopped = rig.runtime->stop();
  EXPECT_TRUE(stopped) << stopped.error().what;
  EXPECT_EQ(rig.clients->all().size(), 64u);
}

// Sampled rows go by the sampler's thread: the same seed gives the same stream, alone or in company.
TEST_P(Depth, SampledRequestsRepeatWithTheirSeed) {
  const auto s = script();
  Rig rig = make_rig(options(), s);
  Request sampled = make_request(1, 9, 30, s);
  sampled.sampling.temperature = 0.9f;
  sampled.sampling.seed = 1234;
  sampled.sampling.logprobs = 2;
  ASSERT_TRUE(rig.runtime->submit(sampled, rig.clients->callback(1)));
  rig.clients->wait_ended(1);
  for (std::uint64_t client = 2; client < 10; ++client) {
    Request r = client % 2 == 0 ? sampled : make_request(client, 20, 30, s);
    r.client = client;
    ASSERT_TRUE(rig.runtime->submit(r, rig.clients->callback(client)));
  }
  rig.clients->wait_ended(9);
  for (std::uint64_t client = 2; client < 10; client += 2) {
    EXPECT_EQ(rig.clients->record(client).tokens, rig.clients->record(1).tokens);
    EXPECT_EQ(rig.clients->record(client).finish->seed, 1234u);
  }
  EXPECT_TRUE(rig.runtime->stop());
}

// The second turn of a conversation brings the first one's answer back in its prompt: its blocks are still there.
TEST_P(Depth, TheNextTurnFindsTheAnswerInThePrefixCache) {
  device::ScriptedOptions s;  // without an end of sequence: the lengths are known
  Rig rig = make_rig(options(), s);
  const Request first = make_request(1, 20, 60, s);
  ASSERT_TRUE(rig.runtime->submit(first, rig.clients->callback(1)));
  rig.clients->wait_ended(1);
  const std::vector<Token> answer = rig.clients->record(1).tokens;
  ASSERT_EQ(answer, expected(first, s));
  Request second = make_request(2, 0, 30, s);
  second.prompt = first.prompt;
  second.prompt.insert(second.prompt.end(), answer.begin(), answer.end());
  second.prompt.push_back(3);
  ASSERT_TRUE(rig.runtime->submit(second, rig.clients->callback(2)));
  rig.clients->wait_ended(2);
  const Record record = rig.clients->record(2);
  EXPECT_EQ(record.tokens, expected(second, s));
  // 20 + 60 tokens, whose last one was never an input: four full blocks of 16.
  EXPECT_EQ(record.finish->usage.cached_tokens, 64u);
}

TEST_P(Depth, CancelEndsARequestOnceWithAPrefix) {
  auto s = script();
  s.eos_per_mille = 0;
  s.step_ns = 200'000;
  Rig rig = make_rig(options(), s);
  const Request longest = make_request(1, 4, 450, s);
  const Request other = make_request(2, 4, 60, s);
  ASSERT_TRUE(rig.runtime->submit(longest, rig.clients->callback(1)));
  ASSERT_TRUE(rig.runtime->submit(other, rig.clients->callback(2)));
  rig.clients->wait_tokens(1, 5);
  EXPECT_EQ(rig.runtime->cancel(1), CancelOutcome::cancelled_running);
  rig.clients->wait_ended(2);
  const Record cancelled = rig.clients->record(1);
  EXPECT_EQ(cancelled.finish->reason, FinishReason::cancelled);
  EXPECT_LT(cancelled.tokens.size(), 450u);
  std::vector<Token> prefix = expected(longest, s);
  prefix.resize(cancelled.tokens.size());
  EXPECT_EQ(cancelled.tokens, prefix);
  EXPECT_EQ(rig.clients->record(2).tokens, expected(other, s));
  EXPECT_EQ(rig.runtime->cancel(2), CancelOutcome::already_finished);
  EXPECT_EQ(rig.runtime->cancel(99), CancelOutcome::not_found);
  const auto stopped = rig.runtime->stop();
  EXPECT_TRUE(stopped) << stopped.error().what;
  EXPECT_EQ(rig.clients->record(1).wrong, "");
}

// Every request has one end, also those that were running, and nothing hangs.
TEST_P(Depth, StopInTheMiddle) {
  auto s = script();
  s.eos_per_mille = 0;
  s.step_ns = 300'000;
  RuntimeOptions o = options();
  o.max_batch = 8;  // some wait
  Rig rig = make_rig(o, s);
  for (std::uint64_t client = 1; client <= 24; ++client) {
    Request r = make_request(client, 10, 400, s);
    if (client % 3 == 0) r.sampling.temperature = 1;
    ASSERT_TRUE(rig.runtime->submit(r, rig.clients->callback(client)));
  }
  rig.clients->wait_tokens(1, 3);
  const auto stopped = rig.runtime->stop();
  EXPECT_TRUE(stopped) << stopped.error().what;
  for (const auto& [client, record] : rig.clients->all()) {
    ASSERT_TRUE(record.finish) << client;
    EXPECT_EQ(record.finish->reason, FinishReason::error);
    EXPECT_EQ(record.finish->error.code, ErrorCode::closed);
    EXPECT_EQ(record.wrong, "");
  }
  EXPECT_EQ(rig.clients->all().size(), 24u);
  const auto late = rig.runtime->submit(make_request(99, 1, 1, s), {});
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::closed);
  EXPECT_EQ(rig.runtime->cancel(1), CancelOutcome::not_found);
  EXPECT_FALSE(rig.runtime->drain(1ms));
  EXPECT_EQ(rig.runtime->facts(), DeviceFacts{});
  EXPECT_TRUE(rig.runtime->stop());
}

INSTANTIATE_TEST_SUITE_P(SyncAndAsync, Depth, testing::Values(1, 2));

TEST(Runtime, RefusesBadRequestsAndTheOthersGoOn) {
  const auto s = script();
  RuntimeOptions o;
  o.max_live = 2;
  Rig rig = make_rig(o, s);
  Request bad = make_request(1, 3, 3, s);
  bad.prompt.clear();
  const auto refused = rig.runtime->submit(bad, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::bad_request);
  const Request good = make_request(1, 3, 300, s);
  ASSERT_TRUE(rig.runtime->submit(good, rig.clients->callback(1)));
  rig.clients->wait_ended(1);
  EXPECT_EQ(rig.clients->record(1).tokens, expected(good, s));
  EXPECT_TRUE(rig.runtime->drain(10s));
  const auto closed = rig.runtime->submit(good, {});
  ASSERT_FALSE(closed);
  EXPECT_EQ(closed.error().code, ErrorCode::closed);
  EXPECT_TRUE(rig.runtime->stop());
}

TEST(Runtime, DrainGivesUpWhenItsTimeIsOver) {
  auto s = script();
  s.step_ns = 2'000'000;
  s.eos_per_mille = 0;
  Rig rig = make_rig({}, s);
  ASSERT_TRUE(rig.runtime->submit(make_request(1, 3, 400, s), rig.clients->callback(1)));
  EXPECT_FALSE(rig.runtime->drain(20ms));
  EXPECT_TRUE(rig.runtime->stop());
}

TEST(Runtime, StopsWhileAThreadThatCalledItLivesOn) {
  Rig rig = make_rig({}, script());
  std::promise<void> asked, stopped;
  std::thread caller([&] {
    EXPECT_GT(rig.runtime->metrics().facts.total_blocks, 0u);
    asked.set_value();
    stopped.get_future().wait();
  });
  asked.get_future().wait();
  EXPECT_TRUE(rig.runtime->stop());
  stopped.set_value();
  caller.join();
}

// A callback may ask and submit; it may not stop, and what it throws is its own affair.
TEST(Runtime, CallbacksMayCallTheRuntime) {
  const auto s = script();
  Rig rig = make_rig({}, s);
  Runtime& runtime = *rig.runtime;
  std::atomic<int> refused_stops{0};
  const Request next = make_request(2, 4, 5, s);
  ASSERT_TRUE(runtime.submit(make_request(1, 3, 5, s), [&](const RequestEvent& event) {
    if (event.finish != nullptr) {
      if (!runtime.stop()) ++refused_stops;
      EXPECT_GT(runtime.facts().total_blocks, 0u);
      EXPECT_TRUE(runtime.submit(next, rig.clients->callback(2)));
    }
    throw 1;
  }));
  rig.clients->wait_ended(1);
  EXPECT_EQ(refused_stops, 1);
  EXPECT_EQ(rig.clients->record(2).tokens, expected(next, s));
  EXPECT_TRUE(runtime.stop());
}

TEST(Runtime, TwoInOneProcessDoNotMeet) {
  auto s = script();
  auto t = script();
  t.seed = 99;
  RuntimeOptions spinning;
  spinning.spin = 100us;
  Rig a = make_rig({}, s);
  Rig b = make_rig(spinning, t);
  for (std::uint64_t client = 1; client <= 8; ++client) {
    ASSERT_TRUE(a.runtime->submit(make_request(client, 6, 50, s), a.clients->callback(client)));
    ASSERT_TRUE(b.runtime->submit(make_request(client, 6, 50, t), b.clients->callback(client)));
  }
  a.clients->wait_ended(8);
  EXPECT_TRUE(a.runtime->stop());
  b.clients->wait_ended(8);
  for (std::uint64_t client = 1; client <= 8; ++client) {
    EXPECT_EQ(a.clients->record(client).tokens, expected(make_request(client, 6, 50, s), s));
    EXPECT_EQ(b.clients->record(client).tokens, expected(make_request(client, 6, 50, t), t));
  }
  EXPECT_TRUE(b.runtime->stop());
}

TEST(Runtime, RefusesAbsurdOptions) {
  const auto refused = [](const RuntimeOptions& o) {
    auto driver = device::make_host_driver();
    auto model = device::ScriptedModel::load(*driver, {});
    const auto runtime = Runtime::start(o, std::move(driver), std::move(model.value()));
    return !runtime && runtime.error().code == ErrorCode::bad_request;
  };
  RuntimeOptions o;
  o.depth = 0;
  EXPECT_TRUE(refused(o));
  o = {};
  o.max_batch = 0;
  EXPECT_TRUE(refused(o));
  o = {};
  o.max_live = 0;
  EXPECT_TRUE(refused(o));
  o = {};
  o.step_tokens = 0;
  EXPECT_TRUE(refused(o));
  o = {};
  o.kv_blocks = 1'000'000;
  EXPECT_TRUE(refused(o));
  o = {};
  o.step_timeout = {};
  EXPECT_TRUE(refused(o));
  EXPECT_FALSE(Runtime::start({}, nullptr, nullptr));
}

TEST(Runtime, AFailedStartSaysWhatTheDriverSaid) {
  auto driver = device::make_host_driver();
  auto model = device::ScriptedModel::load(*driver, {});
  driver->inject({device::DriverCall::create_event, 2, ErrorCode::device_failed, false});
  const auto runtime = Runtime::start({}, std::move(driver), std::move(model.value()));
  ASSERT_FALSE(runtime);
  EXPECT_EQ(runtime.error().code, ErrorCode::device_failed);
}

}  // namespace
}  // namespace troupe
