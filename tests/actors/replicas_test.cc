// Several replicas in one runtime: requests go to all of them, and whatever happens to one, each client gets what it would have
// got anyway, once (R5), and nothing is left over.
#include <chrono>
#include <filesystem>
#include <thread>

#include "actors/trace/check.h"
#include "actors/trace/reader.h"
#include "actors/trace/replay.h"
#include "tests/actors/replicas_rig.h"

namespace troupe {
namespace {

using namespace std::chrono_literals;
using device::ScriptedFault;
using test::expected;
using test::impatient;
using test::make_replicas;
using test::make_request;
using test::Record;
using test::ReplicasRig;

device::ScriptedOptions slow_script() {
  device::ScriptedOptions s;
  s.step_ns = 200'000;
  s.spin_ns = 0;
  return s;
}

void submit_all(ReplicasRig& rig, std::uint64_t first, std::uint64_t last, std::uint32_t tokens, const device::ScriptedOptions& script) {
  for (std::uint64_t client = first; client <= last; ++client) {
    const auto id = rig.runtime->submit(make_request(client, 4 + client % 40, tokens, script), rig.clients->callback(client));
    ASSERT_TRUE(id) << id.error().what;
  }
}

void expect_all(ReplicasRig& rig, std::uint64_t first, std::uint64_t last, std::uint32_t tokens, const device::ScriptedOptions& script) {
  for (std::uint64_t client = first; client <= last; ++client) {
    const Record record = rig.clients->record(client);
    ASSERT_TRUE(record.finish) << client;
    EXPECT_EQ(record.tokens, expected(make_request(client, 4 + client % 40, tokens, script), script))
        << client << ": " << record.finish->error.what;
    EXPECT_EQ(record.wrong, "") << client;
    EXPECT_FALSE(record.finish->other_arithmetic) << client;
  }
}

void expect_stopped(ReplicasRig& rig) {
  const auto stopped = rig.runtime->stop();
  EXPECT_TRUE(stopped) << stopped.error().what;
}

TEST(Replicas, ShareTheRequests) {
  device::ScriptedOptions script;
  script.eos_per_mille = 10;
  ReplicasRig rig = make_replicas(3, impatient(), script);
  submit_all(rig, 1, 90, 60, script);
  rig.clients->wait_ended(90);
  expect_all(rig, 1, 90, 60, script);
  const RuntimeMetrics m = rig.runtime->metrics();
  ASSERT_EQ(m.replicas.size(), 3u);
  for (const ReplicaStatus& r : m.replicas) {
    EXPECT_EQ(r.state, ReplicaState::up);
    EXPECT_EQ(r.live, 0u) << r.name;
    EXPECT_EQ(r.outstanding, 0u) << r.name;
    EXPECT_EQ(rig.lives->openings(r.replica.index), 1u);
  }
  EXPECT_EQ(m.running + m.waiting, 0u);
  EXPECT_EQ(m.facts.free_blocks + m.facts.cached_blocks, m.facts.total_blocks);
  EXPECT_EQ(m.facts.total_blocks, 3 * script.kv_blocks);
  EXPECT_TRUE(rig.runtime->drain(10s));
  expect_stopped(rig);
}

TEST(Replicas, WorkIsOnAllOfThem) {
  const device::ScriptedOptions script = slow_script();
  ReplicasRig rig = make_replicas(2, impatient(), script);
  submit_all(rig, 1, 24, 300, script);
  rig.clients->wait_tokens(24, 2);
  const RuntimeMetrics m = rig.runtime->metrics();
  EXPECT_GE(m.replicas[0].live, 8u);
  EXPECT_GE(m.replicas[1].live, 8u);
  rig.clients->wait_ended(24);
  expect_all(rig, 1, 24, 300, script);
  expect_stopped(rig);
}

TEST(Replicas, ALostDeviceMovesItsRequestsAndComesBack) {
  const device::ScriptedOptions script = slow_script();
  ReplicasRig rig = make_replicas(2, impatient(), script);
  submit_all(rig, 1, 16, 200, script);
  for (std::uint64_t client = 1; client <= 16; ++client) rig.clients->wait_tokens(client, 3);
  rig.lives->last(0).driver->inject({device::DriverCall::enqueue, 2, ErrorCode::device_lost, true});
  rig.clients->wait_ended(16);
  expect_all(rig, 1, 16, 200, script);
  rig.wait_state(0, ReplicaState::up, 2);
  EXPECT_EQ(rig.status(0).error.code, ErrorCode::device_lost);
  EXPECT_EQ(rig.status(0).tries, 1u);
  EXPECT_EQ(rig.status(1).replica.incarnation, 1u);
  submit_all(rig, 21, 40, 40, script);
  rig.clients->wait_ended(36);
  expect_all(rig, 21, 40, 40, script);
  EXPECT_GT(rig.status(0).report.tokens, 0u);
  expect_stopped(rig);
}

// Both, one after the other, again and again, with rows that the sampler chooses among them.
TEST(Replicas, WhateverIsLostTheStreamsAreThoseOfAnUndisturbedRun) {
  const device::ScriptedOptions script = slow_script();
  const auto request = [&](std::uint64_t client) {
    Request r = make_request(client, 3 + client % 30, 150, script);
    if (client % 2 == 0) {
      r.sampling.temperature = 0.8f;
      r.sampling.seed = client;
      r.sampling.presence_penalty = 0.4f;
      r.sampling.frequency_penalty = 0.2f;
    }
    if (client % 3 == 0) r.stop.stop = {"t17 t", "t3 "};
    return r;
  };
  std::map<std::uint64_t, Record> calm;
  {
    ReplicasRig rig = make_replicas(1, impatient(), script);
    for (std::uint64_t client = 1; client <= 12; ++client) ASSERT_TRUE(rig.runtime->submit(request(client), rig.clients->callback(client)));
    rig.clients->wait_ended(12);
    calm = rig.clients->all();
    expect_stopped(rig);
  }
  RuntimeOptions options = impatient();
  options.supervision.max_restarts = 1000;
  ReplicasRig rig =
      make_replicas(2, options, script, [](std::uint32_t index, std::uint32_t life, device::Driver& driver, device::ScriptedOptions&) {
        // Each life ends after some steps; the third of a replica lasts.
        if (life < 3) driver.inject({device::DriverCall::enqueue, 60 + 40 * index + 10 * life, ErrorCode::device_lost, true});
        return Result<void>(success());
      });
  for (std::uint64_t client = 1; client <= 12; ++client) ASSERT_TRUE(rig.runtime->submit(request(client), rig.clients->callback(client)));
  rig.clients->wait_ended(12);
  for (const auto& [client, record] : rig.clients->all()) {
    EXPECT_EQ(record.tokens, calm[client].tokens) << client << ": " << record.finish->error.what;
    EXPECT_EQ(record.text, calm[client].text) << client;
    EXPECT_EQ(record.finish->reason, calm[client].finish->reason) << client;
    EXPECT_EQ(record.finish->usage.completion_tokens, calm[client].finish->usage.completion_tokens) << client;
    if (const auto seed = request(client).sampling.seed) {
      EXPECT_EQ(record.finish->seed, *seed) << client;
    }
    EXPECT_EQ(record.wrong, "") << client;
  }
  EXPECT_GE(rig.lives->openings(0) + rig.lives->openings(1), 4u);
  expect_stopped(rig);
}

// Its requests wait for its next life.
TEST(Replicas, OneAloneGoesOnInItsNextLife) {
  const device::ScriptedOptions script = slow_script();
  ReplicasRig rig =
      make_replicas(1, impatient(), script, [](std::uint32_t, std::uint32_t life, device::Driver& driver, device::ScriptedOptions&) {
        if (life == 1) driver.inject({device::DriverCall::enqueue, 80, ErrorCode::device_lost, true});
        return Result<void>(success());
      });
  submit_all(rig, 1, 8, 100, script);
  rig.clients->wait_ended(8);
  expect_all(rig, 1, 8, 100, script);
  EXPECT_EQ(rig.lives->openings(0), 2u);
  EXPECT_GT(rig.runtime->metrics().scheduler.tokens, 800u - 8);  // of both lives
  expect_stopped(rig);
}

TEST(Replicas, AStepThatHangsLosesItsReplicaAlone) {
  device::ScriptedOptions script = slow_script();
  RuntimeOptions options = impatient();
  options.step_timeout = 100ms;
  ReplicasRig rig =
      make_replicas(2, options, script, [](std::uint32_t index, std::uint32_t life, device::Driver&, device::ScriptedOptions& s) {
        if (index == 0 && life == 1) s.faults = {{ScriptedFault::Kind::hang_step, 20}};
        return Result<void>(success());
      });
  device::ScriptedModel* hanging = rig.lives->last(0).model;
  submit_all(rig, 1, 16, 200, script);
  rig.clients->wait_ended(16);
  expect_all(rig, 1, 16, 200, script);
  rig.wait_state(0, ReplicaState::up, 2);
  hanging->release();
  expect_stopped(rig);
}

// What a device that never comes back holds is left to it; everything else is given back, and stop says so.
TEST(Replicas, AStepThatNeverEndsIsSaidAtTheEnd) {
  device::ScriptedOptions script = slow_script();
  RuntimeOptions options = impatient();
  options.step_timeout = 50ms;
  ReplicasRig rig =
      make_replicas(2, options, script, [](std::uint32_t index, std::uint32_t life, device::Driver&, device::ScriptedOptions& s) {
        if (index == 1 && life == 1) s.faults = {{ScriptedFault::Kind::hang_step, 20}};
        return Result<void>(success());
      });
  submit_all(rig, 1, 8, 200, script);
  rig.clients->wait_ended(8);
  expect_all(rig, 1, 8, 200, script);
  const auto stopped = rig.runtime->stop();
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::device_lost);
  EXPECT_NE(stopped.error().what.find("abandoned"), std::string::npos) << stopped.error().what;
}

TEST(Replicas, OneThatDoesNotStartAgainIsGivenUpAndTheOthersServe) {
  const device::ScriptedOptions script = slow_script();
  RuntimeOptions options = impatient();
  options.supervision.max_restarts = 3;
  std::atomic<bool> mended{false};
  ReplicasRig rig =
      make_replicas(2, options, script, [&](std::uint32_t index, std::uint32_t life, device::Driver& driver, device::ScriptedOptions&) {
        if (index != 0) return Result<void>(success());
        if (life > 1 && !mended) return Result<void>(Error{ErrorCode::io_failed, "no such device"});
        if (life == 1) driver.inject({device::DriverCall::enqueue, 60, ErrorCode::device_lost, true});
        return Result<void>(success());
      });
  submit_all(rig, 1, 12, 100, script);
  rig.clients->wait_ended(12);
  expect_all(rig, 1, 12, 100, script);
  rig.wait_state(0, ReplicaState::failed);
  EXPECT_EQ(rig.lives->openings(0), 4u);
  EXPECT_EQ(rig.status(0).error.what, "no such device");
  submit_all(rig, 21, 26, 20, script);
  rig.clients->wait_ended(18);
  expect_all(rig, 21, 26, 20, script);
  // Whoever looks after it can have it back.
  mended = true;
  const auto back = rig.runtime->undrain_replica(0);
  EXPECT_TRUE(back) << back.error().what;
  rig.wait_state(0, ReplicaState::up, 2);
  expect_stopped(rig);
}

TEST(Replicas, WithNoneLeftRequestsEndAndNewOnesAreUnavailable) {
  const device::ScriptedOptions script = slow_script();
  RuntimeOptions options = impatient();
  options.supervision.max_restarts = 1;
  ReplicasRig rig =
      make_replicas(1, options, script, [](std::uint32_t, std::uint32_t life, device::Driver& driver, device::ScriptedOptions&) {
        if (life > 1) return Result<void>(Error{ErrorCode::io_failed, "no such device"});
        driver.inject({device::DriverCall::enqueue, 40, ErrorCode::device_lost, true});
        return Result<void>(success());
      });
  submit_all(rig, 1, 4, 300, script);
  rig.clients->wait_ended(4);
  for (const auto& [client, record] : rig.clients->all()) {
    EXPECT_EQ(record.finish->reason, FinishReason::error) << client;
    EXPECT_EQ(record.finish->error.code, ErrorCode::unavailable) << record.finish->error.what;
    EXPECT_EQ(record.wrong, "");
    std::vector<Token> prefix = expected(make_request(client, 4 + client % 40, 300, script), script);
    prefix.resize(record.tokens.size());
    EXPECT_EQ(record.tokens, prefix) << client;
  }
  rig.wait_state(0, ReplicaState::failed);
  const auto refused = rig.runtime->submit(make_request(9, 3, 3, script), {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unavailable);
  expect_stopped(rig);
}

TEST(Replicas, ADrainedOneGetsNoRequestsUntilItIsBack) {
  const device::ScriptedOptions script = slow_script();
  ReplicasRig rig = make_replicas(2, impatient(), script);
  submit_all(rig, 1, 8, 60, script);
  const auto impatiently = rig.runtime->drain_replica(0, 1ms);
  ASSERT_TRUE(impatiently) << impatiently.error().what;
  const auto drained = rig.runtime->drain_replica(0, 60s);
  ASSERT_TRUE(drained) << drained.error().what;
  EXPECT_TRUE(drained.value());
  EXPECT_EQ(rig.status(0).state, ReplicaState::drained);
  const std::uint64_t tokens = rig.status(0).report.tokens;
  submit_all(rig, 11, 20, 20, script);
  rig.clients->wait_ended(18);
  expect_all(rig, 1, 8, 60, script);
  expect_all(rig, 11, 20, 20, script);
  EXPECT_EQ(rig.status(0).live, 0u);
  ASSERT_TRUE(rig.runtime->undrain_replica(0));
  EXPECT_EQ(rig.status(0).state, ReplicaState::up);
  submit_all(rig, 31, 42, 20, script);
  rig.clients->wait_ended(30);
  while (rig.status(0).report.tokens == tokens) std::this_thread::sleep_for(1ms);
  const auto nobody = rig.runtime->drain_replica(7, 1s);
  ASSERT_FALSE(nobody);
  EXPECT_EQ(nobody.error().code, ErrorCode::not_found);
  expect_stopped(rig);
}

TEST(Replicas, StopInTheMiddleOfARestart) {
  const device::ScriptedOptions script = slow_script();
  ReplicasRig rig =
      make_replicas(2, impatient(), script, [](std::uint32_t index, std::uint32_t life, device::Driver& driver, device::ScriptedOptions&) {
        if (index == 0 && life == 1) driver.inject({device::DriverCall::enqueue, 60, ErrorCode::device_lost, true});
        if (life > 1) std::this_thread::sleep_for(50ms);
        return Result<void>(success());
      });
  submit_all(rig, 1, 12, 400, script);
  while (rig.lives->openings(0) < 2) std::this_thread::sleep_for(1ms);
  expect_stopped(rig);
  for (const auto& [client, record] : rig.clients->all()) {
    ASSERT_TRUE(record.finish) << client;
    EXPECT_EQ(record.finish->error.code, ErrorCode::closed) << client;
    EXPECT_EQ(record.wrong, "");
  }
  EXPECT_EQ(rig.clients->all().size(), 12u);
}

TEST(Replicas, AllMustStart) {
  std::vector<ReplicaSource> sources;
  test::Lives lives;
  for (std::uint32_t i = 0; i < 2; ++i) {
    sources.push_back(lives.source(i, {}, [](std::uint32_t index, std::uint32_t, device::Driver&, device::ScriptedOptions&) {
      return index == 1 ? Result<void>(Error{ErrorCode::unsupported, "no such device"}) : Result<void>(success());
    }));
  }
  const auto missing = Runtime::start(impatient(), std::move(sources));
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::unsupported);
  EXPECT_FALSE(Runtime::start({}, std::vector<ReplicaSource>{}));
  std::vector<ReplicaSource> different;
  different.push_back(lives.source(0, {}, {}));
  device::ScriptedOptions other;
  other.vocab = 128;
  different.push_back(lives.source(1, other, {}));
  const auto mixed = Runtime::start(impatient(), std::move(different));
  ASSERT_FALSE(mixed);
  EXPECT_EQ(mixed.error().code, ErrorCode::bad_request) << mixed.error().what;
}

// Every part of the recording, of every life, holds by itself.
TEST(Replicas, EachPartOfTheRecordingIsARecording) {
  const device::ScriptedOptions script = slow_script();
  RuntimeOptions options = impatient();
  options.trace.file = testing::TempDir() + "/replicas.trace";
  ReplicasRig rig =
      make_replicas(2, options, script, [](std::uint32_t index, std::uint32_t life, device::Driver& driver, device::ScriptedOptions&) {
        if (index == 1 && life == 1) driver.inject({device::DriverCall::enqueue, 60, ErrorCode::device_lost, true});
        return Result<void>(success());
      });
  submit_all(rig, 1, 12, 80, script);
  rig.clients->wait_ended(12);
  rig.wait_state(1, ReplicaState::up, 2);
  submit_all(rig, 21, 32, 20, script);
  rig.clients->wait_ended(24);
  ASSERT_TRUE(rig.runtime->dump_trace(testing::TempDir() + "/replicas.flight"));
  EXPECT_TRUE(std::filesystem::exists(testing::TempDir() + "/replicas.flight.front"));
  EXPECT_FALSE(rig.runtime->dump_trace(testing::TempDir() + "/replicas.flight", "r7"));
  expect_stopped(rig);
  for (const char* part : {".front", ".r0", ".r1", ".r1.2"}) {
    const auto read = actors::trace::read_recording(options.trace.file + part);
    ASSERT_TRUE(read) << part << ": " << read.error().what;
    EXPECT_EQ(read.value().lost, 0u) << part;
    const auto checked = actors::trace::check(read.value());
    ASSERT_TRUE(checked) << part << ": " << checked.error().what;
    EXPECT_GT(checked.value().messages, 10u) << part;
    if (checked.value().finding) ADD_FAILURE() << part << ": " << checked.value().finding->rule << ": " << checked.value().finding->what;
    const auto replayed = actors::trace::replay(read.value());
    ASSERT_TRUE(replayed) << part << ": " << replayed.error().what;
    EXPECT_GT(replayed.value().compared, 5u) << part;
    if (replayed.value().difference) ADD_FAILURE() << part << ": " << replayed.value().difference->what;
  }
}

}  // namespace
}  // namespace troupe
