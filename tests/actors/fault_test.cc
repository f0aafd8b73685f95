// The whole path when the device fails: every request has its one end, nothing hangs, and what is left is said.
#include <chrono>
#include <thread>

#include "tests/actors/polling_driver.h"
#include "tests/actors/rig.h"

namespace troupe {
namespace {

using namespace std::chrono_literals;
using device::ScriptedFault;
using test::expected;
using test::make_request;
using test::make_rig;
using test::Rig;

void submit_all(Rig& rig, std::uint64_t n, std::uint32_t tokens, const device::ScriptedOptions& script) {
  for (std::uint64_t client = 1; client <= n; ++client) {
    const auto id = rig.runtime->submit(make_request(client, 4, tokens, script), rig.clients->callback(client));
    ASSERT_TRUE(id) << id.error().what;
  }
}

class Fault : public testing::TestWithParam<std::uint32_t> {
 protected:
  RuntimeOptions options() const {
    RuntimeOptions o;
    o.depth = GetParam();
    return o;
  }
};

// R7: once more from the host's tokens.
TEST_P(Fault, AStepThatFailsOnceIsDoneAgain) {
  device::ScriptedOptions script;
  script.faults = {{ScriptedFault::Kind::fail_step, 5}, {ScriptedFault::Kind::fail_step, 17}, {ScriptedFault::Kind::nan_row, 30, 1}};
  Rig rig = make_rig(options(), script);
  submit_all(rig, 6, 50, script);
  rig.clients->wait_ended(6);
  for (std::uint64_t client = 1; client <= 6; ++client) {
    EXPECT_EQ(rig.clients->record(client).tokens, expected(make_request(client, 4, 50, script), script))
        << client << ": " << rig.clients->record(client).finish->error.what;
  }
  EXPECT_GT(rig.runtime->metrics().scheduler.failed_rows, 0u);
  const auto stopped = rig.runtime->stop();
  EXPECT_TRUE(stopped) << stopped.error().what;
}

TEST_P(Fault, CallsThatFailWhileEnqueueingAreDoneAgain) {
  device::ScriptedOptions script;
  Rig rig = make_rig(options(), script);
  using device::DriverCall;
  rig.driver->inject({DriverCall::enqueue, 11, ErrorCode::device_failed, false});
  rig.driver->inject({DriverCall::enqueue, 40, ErrorCode::device_failed, false});
  rig.driver->inject({DriverCall::record_event, 15, ErrorCode::device_failed, false});
  submit_all(rig, 6, 50, script);
  rig.clients->wait_ended(6);
  for (std::uint64_t client = 1; client <= 6; ++client) {
    EXPECT_EQ(rig.clients->record(client).tokens, expected(make_request(client, 4, 50, script), script))
        << client << ": " << rig.clients->record(client).finish->error.what;
  }
  const auto stopped = rig.runtime->stop();
  EXPECT_TRUE(stopped) << stopped.error().what;
}

// Sticky: nothing can be given back, and stop says so.
TEST_P(Fault, ALostDeviceEndsEveryRequest) {
  device::ScriptedOptions script;
  Rig rig = make_rig(options(), script);
  rig.driver->inject({device::DriverCall::enqueue, 25, ErrorCode::device_lost, true});
  submit_all(rig, 6, 300, script);
  rig.clients->wait_ended(6);
  for (const auto& [client, record] : rig.clients->all()) {
    EXPECT_EQ(record.finish->reason, FinishReason::error) << client;
    EXPECT_EQ(record.finish->error.code, ErrorCode::device_lost) << client << ": " << record.finish->error.what;
    EXPECT_EQ(record.wrong, "");
  }
  const auto later = rig.runtime->submit(make_request(9, 4, 5, script), rig.clients->callback(9));
  if (later) rig.clients->wait_ended(7);
  const auto stopped = rig.runtime->stop();
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::device_lost) << stopped.error().what;
  EXPECT_NE(stopped.error().what.find("abandoned"), std::string::npos) << stopped.error().what;
}

// A step that is older than step_timeout ends the requests; stop then waits for it, within its bound.
TEST_P(Fault, AStepThatHangsForAWhile) {
  device::ScriptedOptions script;
  script.faults = {{ScriptedFault::Kind::hang_step, 20}};
  RuntimeOptions o = options();
  o.step_timeout = 100ms;
  Rig rig = make_rig(o, script);
  submit_all(rig, 4, 300, script);
  rig.clients->wait_ended(4);
  for (const auto& [client, record] : rig.clients->all()) {
    EXPECT_EQ(record.finish->reason, FinishReason::error) << client;
    EXPECT_EQ(record.finish->error.code, ErrorCode::device_lost) << client;
  }
  std::thread release([&] {
    std::this_thread::sleep_for(50ms);
    rig.model->release();
  });
  const auto stopped = rig.runtime->stop();
  release.join();
  EXPECT_TRUE(stopped) << stopped.error().what;
}

// The bound of stop: what a device that never comes back holds is left to it, and stop says so.
TEST_P(Fault, AStepThatNeverEnds) {
  device::ScriptedOptions script;
  script.faults = {{ScriptedFault::Kind::hang_step, 20}};
  RuntimeOptions o = options();
  o.step_timeout = 50ms;
  Rig rig = make_rig(o, script);
  submit_all(rig, 4, 300, script);
  rig.clients->wait_ended(4);
  const auto stopped = rig.runtime->stop();
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::device_lost);
  EXPECT_NE(stopped.error().what.find("abandoned"), std::string::npos) << stopped.error().what;
  EXPECT_FALSE(rig.runtime->submit(make_request(9, 4, 5, script), {}));
  rig.runtime.reset();
  rig.model->release();  // nobody is left to hear of it
}

// Where the driver announces nothing, the control thread asks.
TEST_P(Fault, PolledCompletionsGiveTheSameTokens) {
  device::ScriptedOptions script;
  script.step_ns = 20'000;
  Rig rig = make_rig(options(), script, std::make_unique<test::PollingDriver>());
  submit_all(rig, 16, 60, script);
  rig.clients->wait_ended(16);
  for (std::uint64_t client = 1; client <= 16; ++client) {
    EXPECT_EQ(rig.clients->record(client).tokens, expected(make_request(client, 4, 60, script), script)) << client;
  }
  const auto stopped = rig.runtime->stop();
  EXPECT_TRUE(stopped) << stopped.error().what;
}

TEST_P(Fault, StopWhilePolling) {
  device::ScriptedOptions script;
  script.step_ns = 300'000;
  script.faults = {{ScriptedFault::Kind::fail_step, 7}};
  Rig rig = make_rig(options(), script, std::make_unique<test::PollingDriver>());
  submit_all(rig, 4, 400, script);
  rig.clients->wait_tokens(1, 5);
  const auto stopped = rig.runtime->stop();
  EXPECT_TRUE(stopped) << stopped.error().what;
  for (const auto& [client, record] : rig.clients->all()) EXPECT_TRUE(record.finish) << client;
}

INSTANTIATE_TEST_SUITE_P(SyncAndAsync, Fault, testing::Values(1, 2));

}  // namespace
}  // namespace troupe
