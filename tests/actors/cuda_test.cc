// The whole path on the CUDA driver over the fake runtime: the device actor polls, the scripted model computes in host
// functions. After each test the fake has nothing to report (R4: no ring slot was read before its event; R12: no thread
// called without its device) and nothing is left, but for what a lost device holds.
#include <chrono>
#include <thread>

#include "device/cuda/driver.h"
#include "tests/actors/cuda_fault.h"
#include "tests/actors/polling_driver.h"

namespace troupe {
namespace {

using namespace std::chrono_literals;
using device::ScriptedFault;
using fake_cuda::Call;
using test::expected;
using test::make_request;
using test::make_rig;
using test::Rig;

std::unique_ptr<device::Driver> cuda() {
  auto made = device::make_cuda_driver({.index = 1});  // the second of two: a thread that is not bound is on the first
  EXPECT_TRUE(made) << made.error().what;
  return std::move(made.value());
}

void submit_all(Rig& rig, std::uint64_t n, std::uint32_t tokens, const device::ScriptedOptions& script) {
  for (std::uint64_t client = 1; client <= n; ++client) {
    const auto id = rig.runtime->submit(make_request(client, 4, tokens, script), rig.clients->callback(client));
    ASSERT_TRUE(id) << id.error().what;
  }
}

class Cuda : public testing::TestWithParam<std::uint32_t> {
 protected:
  void SetUp() override {
    fake_cuda::reset({.devices = 2, .jitter = 5});
    script.max_depth = 4;
    script.eos_per_mille = 0;
    options.depth = GetParam();
  }
  void TearDown() override { fake_cuda::expect_clean(); }
  void expect_all(Rig& rig, std::uint64_t n, std::uint32_t tokens) {
    for (std::uint64_t client = 1; client <= n; ++client) {
      const test::Record record = rig.clients->record(client);
      EXPECT_EQ(record.tokens, expected(make_request(client, 4, tokens, script), script)) << client << ": " << record.finish->error.what;
      EXPECT_EQ(record.wrong, "");
    }
  }

  device::ScriptedOptions script;
  RuntimeOptions options;
};

TEST_P(Cuda, TheTokensAreTheModels) {
  Rig rig = make_rig(options, script, cuda());
  submit_all(rig, 16, 60, script);
  rig.clients->wait_ended(16);
  expect_all(rig, 16, 60);
  EXPECT_GT(fake_cuda::calls(Call::cudaEventQuery), 0u);
  EXPECT_EQ(fake_cuda::calls(Call::cudaEventSynchronize), 0u) << "never while it serves";
  const auto stopped = rig.runtime->stop();
  EXPECT_TRUE(stopped) << stopped.error().what;
}

// Logits come down too, and the sampler's thread reads them in the ring.
TEST_P(Cuda, SampledRowsRepeatWithTheirSeed) {
  Rig rig = make_rig(options, script, cuda());
  Request sampled = make_request(1, 9, 30, script);
  sampled.sampling.temperature = 0.9f;
  sampled.sampling.seed = 1234;
  sampled.sampling.logprobs = 2;
  for (std::uint64_t client = 1; client < 9; ++client) {
    Request r = client % 2 == 1 ? sampled : make_request(client, 20, 30, script);
    r.client = client;
    ASSERT_TRUE(rig.runtime->submit(r, rig.clients->callback(client)));
  }
  rig.clients->wait_ended(8);
  for (std::uint64_t client = 3; client < 9; client += 2) EXPECT_EQ(rig.clients->record(client).tokens, rig.clients->record(1).tokens);
  EXPECT_EQ(rig.clients->record(1).tokens.size(), 30u);
  EXPECT_TRUE(rig.runtime->stop());
}

TEST_P(Cuda, AStepThatFailsIsDoneAgain) {
  script.faults = {{ScriptedFault::Kind::fail_step, 5}, {ScriptedFault::Kind::fail_step, 17}, {ScriptedFault::Kind::nan_row, 30, 1}};
  Rig rig = make_rig(options, script, cuda());
  submit_all(rig, 6, 50, script);
  rig.clients->wait_ended(6);
  expect_all(rig, 6, 50);
  EXPECT_TRUE(rig.runtime->stop());
}

TEST_P(Cuda, StopInTheMiddle) {
  script.step_ns = 300'000;
  Rig rig = make_rig(options, script, cuda());
  submit_all(rig, 6, 400, script);
  rig.clients->wait_tokens(1, 5);
  const auto stopped = rig.runtime->stop();
  EXPECT_TRUE(stopped) << stopped.error().what;
  for (const auto& [client, record] : rig.clients->all()) EXPECT_TRUE(record.finish) << client;
}

// A kernel that hangs freezes nothing: the requests end by step_timeout, and stop waits for the device within its bound.
TEST_P(Cuda, AStepThatHangsForAWhile) {
  script.faults = {{ScriptedFault::Kind::hang_step, 20}};
  options.step_timeout = 100ms;
  Rig rig = make_rig(options, script, cuda());
  submit_all(rig, 4, 300, script);
  rig.clients->wait_ended(4);
  for (const auto& [client, record] : rig.clients->all()) EXPECT_EQ(record.finish->error.code, ErrorCode::device_lost) << client;
  std::thread release([&] {
    std::this_thread::sleep_for(50ms);
    rig.model->release();
  });
  const auto stopped = rig.runtime->stop();
  release.join();
  EXPECT_TRUE(stopped) << stopped.error().what;
}

// While a kernel hangs, a cancel, a deadline and the figure that says how long nothing has settled go on, and nobody waits in CUDA.
TEST_P(Cuda, CancelDeadlineAndHealthGoOnBesideAKernelThatHangs) {
  script.faults = {{ScriptedFault::Kind::hang_step, 20}};
  options.step_timeout = 300s;
  Rig rig = make_rig(options, script, cuda());
  const auto ask = [&](std::uint64_t client) { return make_request(client, 4, 300, script); };
  for (std::uint64_t client = 1; client <= 4; ++client) {
    Request r = ask(client);
    if (client == 4) r.deadline = 1'000'000'000;
    ASSERT_TRUE(rig.runtime->submit(r, rig.clients->callback(client)));
  }
  while (rig.runtime->metrics().since_last_settled < 100'000'000) std::this_thread::sleep_for(5ms);
  const auto before = rig.runtime->metrics().since_last_settled;
  (void)rig.runtime->cancel(1);
  rig.clients->wait_ended(2);
  EXPECT_EQ(rig.clients->record(1).finish->reason, FinishReason::cancelled);
  EXPECT_EQ(rig.clients->record(4).finish->reason, FinishReason::deadline);
  EXPECT_GT(rig.runtime->metrics().since_last_settled, before);
  EXPECT_EQ(fake_cuda::calls(Call::cudaEventSynchronize), 0u);
  rig.model->release();
  rig.clients->wait_ended(4);
  for (const std::uint64_t client : {2, 3}) EXPECT_EQ(rig.clients->record(client).tokens, expected(ask(client), script));
  EXPECT_TRUE(rig.runtime->stop());
}

// The error comes from the device itself, some steps into the run.
TEST_P(Cuda, ALostDeviceEndsEveryRequestAndIsCounted) {
  Rig rig = make_rig(options, script, cuda());
  fake_cuda::inject({.call = Call::cudaEventQuery, .nth = 40, .error = cudaErrorIllegalAddress, .sticky = true});
  submit_all(rig, 6, 400, script);
  rig.clients->wait_ended(6);
  for (const auto& [client, record] : rig.clients->all()) {
    EXPECT_EQ(record.finish->reason, FinishReason::error) << client;
    EXPECT_EQ(record.finish->error.code, ErrorCode::device_lost) << client << ": " << record.finish->error.what;
    EXPECT_EQ(record.wrong, "");
  }
  const auto stopped = rig.runtime->stop();
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::device_lost);
  EXPECT_NE(stopped.error().what.find("abandoned: 1 streams"), std::string::npos) << stopped.error().what;
  fake_cuda::claim_leaks();
}

INSTANTIATE_TEST_SUITE_P(Depths, Cuda, testing::Values(1, 2, 3, 4));

// Negative controls: what goes wrong where a driver lies is seen by the fake or by the runtime.
class EagerDriver final : public test::ForwardingDriver {
 public:
  using ForwardingDriver::ForwardingDriver;
  Result<bool> event_query(device::Event) override { return true; }
};

class LeakyDriver final : public test::ForwardingDriver {
 public:
  using ForwardingDriver::ForwardingDriver;
  Result<void> destroy_event(device::Event) override { return success(); }
};

TEST(CudaControl, ACompletionThatComesTooEarlyIsCaught) {
  fake_cuda::reset({.devices = 2});
  device::ScriptedOptions script;
  script.step_ns = 500'000;
  Rig rig = make_rig({}, script, std::make_unique<EagerDriver>(cuda()));
  submit_all(rig, 2, 20, script);
  rig.clients->wait_ended(2);
  (void)rig.runtime->stop();
  EXPECT_TRUE(fake_cuda::any_says(fake_cuda::take_reports(), "a ring slot was read too early"));
  fake_cuda::reset();
}

TEST(CudaControl, AnEventThatLeaksIsCaught) {
  fake_cuda::reset({.devices = 2});
  device::ScriptedOptions script;
  Rig rig = make_rig({}, script, std::make_unique<LeakyDriver>(cuda()));
  submit_all(rig, 2, 20, script);
  rig.clients->wait_ended(2);
  const auto stopped = rig.runtime->stop();
  ASSERT_FALSE(stopped);
  EXPECT_NE(stopped.error().what.find("not given back to the driver: 0 streams, 4 events"), std::string::npos) << stopped.error().what;
  fake_cuda::expect_clean();  // the driver's destructor gave them back
}

// R5 and R7 at every CUDA call: some time after the start (or in it) the call fails, once or for good. Every request has
// its one end, a request that ended well has the model's tokens, stop returns, and nothing leaks that is not abandoned.
using Cell = std::tuple<Call, bool, std::uint32_t>;  // the call, sticky, depth
class CudaFault : public testing::TestWithParam<Cell> {};

void live(const device::ScriptedOptions& script, std::uint32_t depth, const fake_cuda::Fault& fault, bool at_start) {
  fake_cuda::reset({.devices = 2});
  if (at_start) fake_cuda::inject(fault);
  auto driver = device::make_cuda_driver({.index = 1});
  if (!driver) return;
  auto model = device::ScriptedModel::load(*driver.value(), script);
  if (!model) return;
  RuntimeOptions options;
  options.depth = depth;
  auto runtime = Runtime::start(options, std::move(driver.value()), std::move(model.value()));
  if (!runtime) return;
  if (!at_start) fake_cuda::inject(fault);
  test::Clients clients;
  std::size_t accepted = 0;
  for (std::uint64_t client = 1; client <= 4; ++client) {
    accepted += runtime.value()->submit(make_request(client, 4, 20, script), clients.callback(client)) ? 1 : 0;
  }
  clients.wait_ended(accepted);
  const test::CudaLife life{fault, !at_start};
  for (const auto& [client, record] : clients.all()) life.expect_ended(record, expected(make_request(client, 4, 20, script), script));
  const bool met = fake_cuda::faults_waiting() == 0;
  life.expect_stopped(runtime.value()->stop(), met);
}

TEST_P(CudaFault, EndsEverythingOnce) {
  const auto [call, sticky, depth] = GetParam();
  device::ScriptedOptions script;
  script.eos_per_mille = 0;
  script.max_depth = 2;
  const auto check = [&, sticky = sticky] {
    for (const std::string& report : fake_cuda::take_reports()) ADD_FAILURE() << report;
    if (!sticky) {
      for (const std::string& leak : fake_cuda::leaks()) ADD_FAILURE() << leak;
    }
    fake_cuda::reset();
  };
  const cudaError_t error = sticky ? cudaErrorIllegalAddress : cudaErrorInvalidValue;
  for (const std::uint64_t nth : {1, 2, 5}) {
    SCOPED_TRACE("time " + std::to_string(nth));
    const fake_cuda::Fault fault{.call = call, .nth = nth, .error = error, .sticky = sticky};
    for (const bool at_start : {true, false}) {
      live(script, depth, fault, at_start);
      check();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Table, CudaFault,
                         testing::Combine(testing::Values(Call::cudaGetDeviceCount, Call::cudaSetDevice, Call::cudaDeviceGetAttribute,
                                                          Call::cudaStreamCreateWithFlags, Call::cudaStreamDestroy, Call::cudaStreamQuery,
                                                          Call::cudaStreamSynchronize, Call::cudaEventCreateWithFlags,
                                                          Call::cudaEventRecord, Call::cudaEventQuery, Call::cudaEventSynchronize,
                                                          Call::cudaEventDestroy, Call::cudaMemcpyAsync, Call::cudaMemsetAsync,
                                                          Call::cudaMallocAsync, Call::cudaFreeAsync, Call::cudaHostAlloc,
                                                          Call::cudaFreeHost, Call::cudaLaunchHostFunc),
                                          testing::Bool(), testing::Values(1, 2)),
                         [](const auto& info) {
                           return std::string(fake_cuda::name(std::get<0>(info.param))) +
                                  (std::get<1>(info.param) ? "_sticky_depth" : "_once_depth") + std::to_string(std::get<2>(info.param));
                         });

}  // namespace
}  // namespace troupe
