// Preempted requests whose state goes to files and comes back, through the whole runtime: the streams are the undisturbed
// ones, no file is left, and where files cannot be had everything is computed again.
#include <filesystem>
#include <fstream>

#include "device/models/load.h"
#include "tests/actors/polling_driver.h"
#include "tests/actors/rig.h"
#include "tests/actors/spill/folder.h"

namespace troupe {
namespace {

using namespace std::chrono_literals;
using test::Clients;
using test::Folder;
using test::make_request;
using test::Rig;

device::ScriptedOptions script() {
  device::ScriptedOptions s;
  s.block_size = 4;
  s.kv_blocks = 60;  // three of the requests below, grown
  s.n_slots = 16;
  return s;
}

constexpr std::uint64_t kClients = 12;

Request request(std::uint64_t client, const device::ScriptedOptions& s) {
  Request r = make_request(client, 10 + client % 5, 60, s);
  if (client % 4 == 0) {
    r.sampling.temperature = 0.8f;
    r.sampling.seed = client;
  }
  return r;
}

RuntimeOptions with_folder(const std::string& folder) {
  RuntimeOptions o;
  o.spill_dir = folder;
  o.spill_min_blocks = 1;
  return o;
}

std::map<std::uint64_t, std::vector<Token>> streams_of(Rig& rig, const device::ScriptedOptions& s) {
  for (std::uint64_t client = 1; client <= kClients; ++client)
    EXPECT_TRUE(rig.runtime->submit(request(client, s), rig.clients->callback(client)));
  EXPECT_TRUE(rig.runtime->drain(60s));
  rig.clients->wait_ended(kClients);
  std::map<std::uint64_t, std::vector<Token>> out;
  for (const auto& [client, record] : rig.clients->all()) {
    EXPECT_EQ(record.wrong, "");
    EXPECT_EQ(record.finish->reason, FinishReason::length) << record.finish->error.what;
    out[client] = record.tokens;
  }
  return out;
}

std::map<std::uint64_t, std::vector<Token>> undisturbed() {
  auto s = script();
  s.kv_blocks = 512;
  Rig rig = test::make_rig({}, s);
  auto out = streams_of(rig, s);
  EXPECT_EQ(rig.runtime->metrics().scheduler.preemptions, 0u);
  EXPECT_TRUE(rig.runtime->stop());
  return out;
}

void spill_and_restore(std::unique_ptr<device::Driver> driver, std::uint32_t depth) {
  Folder folder;
  auto options = with_folder(folder.path());
  options.depth = depth;
  Rig rig = test::make_rig(options, script(), std::move(driver));
  EXPECT_EQ(streams_of(rig, script()), undisturbed());
  const RuntimeMetrics m = rig.runtime->metrics();
  EXPECT_GT(m.scheduler.spills, 3u);
  EXPECT_GT(m.scheduler.restores, 3u);
  EXPECT_EQ(m.scheduler.spill_failures, 0u);
  EXPECT_EQ(m.scheduler.restore_failures, 0u);
  EXPECT_EQ(m.facts.free_blocks + m.facts.cached_blocks, m.facts.total_blocks);
  EXPECT_EQ(folder.count(), 0u) << "a file goes when it was read";
  const auto stopped = rig.runtime->stop();
  EXPECT_TRUE(stopped) << stopped.error().what;
}

TEST(Spill, StreamsAreTheUndisturbedOnesAndNoFileIsLeft) {
  for (const std::uint32_t depth : {1u, 2u, 4u}) spill_and_restore(device::make_host_driver(), depth);
}

TEST(Spill, AlsoWhereCompletionsArePolled) { spill_and_restore(std::make_unique<test::PollingDriver>(), 2); }

// Nothing may lie in the folder: all is computed again.
TEST(Spill, AFullDiskFallsBackToComputingAgain) {
  Folder folder;
  auto options = with_folder(folder.path());
  options.spill_limit = 0;
  Rig rig = test::make_rig(options, script());
  EXPECT_EQ(streams_of(rig, script()), undisturbed());
  const auto m = rig.runtime->metrics().scheduler;
  EXPECT_GT(m.spills, 3u);
  EXPECT_EQ(m.spill_failures, m.spills);
  EXPECT_EQ(m.restores, 0u);
  EXPECT_TRUE(rig.runtime->stop());
}

TEST(Spill, AFolderThatVanishesFallsBackToComputingAgain) {
  Folder folder;
  Rig rig = test::make_rig(with_folder(folder.file("new")), script());
  std::filesystem::remove_all(folder.file("new"));
  EXPECT_EQ(streams_of(rig, script()), undisturbed());
  const auto m = rig.runtime->metrics().scheduler;
  EXPECT_GT(m.spills, 3u);
  EXPECT_EQ(m.spill_failures, m.spills);
  EXPECT_TRUE(rig.runtime->stop());
}

TEST(Spill, StartRemovesWhatAnotherLeft) {
  Folder folder;
  std::ofstream(folder.file("1-65536.kv")) << "TRPSTATE";
  std::ofstream(folder.file("1-7.kv")) << "not ours";
  Rig rig = test::make_rig(with_folder(folder.path()), script());
  EXPECT_FALSE(std::filesystem::exists(folder.file("1-65536.kv")));
  EXPECT_TRUE(std::filesystem::exists(folder.file("1-7.kv")));
  EXPECT_TRUE(rig.runtime->stop());
}

TEST(Spill, AFolderThatCannotBeUsedIsSaidAtTheStart) {
  Folder folder;
  const auto refused = [&](const std::string& path) {
    auto driver = device::make_host_driver();
    auto model = device::ScriptedModel::load(*driver, script());
    const auto runtime = Runtime::start(with_folder(path), std::move(driver), std::move(model.value()));
    return runtime ? ErrorCode::none : runtime.error().code;
  };
  EXPECT_EQ(refused(folder.file("no/such")), ErrorCode::io_failed);
  Rig rig = test::make_rig(with_folder(folder.path()), script());
  EXPECT_EQ(refused(folder.path()), ErrorCode::overloaded) << "two runtimes would remove each other's files";
  EXPECT_TRUE(rig.runtime->stop());
  EXPECT_EQ(refused(folder.path()), ErrorCode::none);
}

// Requests end at any moment, also while they are saved and brought back.
TEST(Spill, CancelsAndAStopInTheMiddleLeaveNothing) {
  for (std::uint32_t round = 0; round < 6; ++round) {
    Folder folder;
    auto s = script();
    s.step_ns = 100'000;
    Rig rig = test::make_rig(with_folder(folder.path()), s);
    for (std::uint64_t client = 1; client <= kClients; ++client)
      ASSERT_TRUE(rig.runtime->submit(request(client, s), rig.clients->callback(client)));
    rig.clients->wait_tokens(1, 20 + 5 * round);
    for (std::uint64_t client = 1 + round % 2; client <= kClients; client += 2) (void)rig.runtime->cancel(client);
    if (round % 2 == 0) {
      EXPECT_TRUE(rig.runtime->drain(60s));
      EXPECT_EQ(folder.count(), 0u);
      const DeviceFacts f = rig.runtime->facts();
      EXPECT_EQ(f.free_blocks + f.cached_blocks, f.total_blocks);
    }
    const auto stopped = rig.runtime->stop();
    EXPECT_TRUE(stopped) << stopped.error().what;
    EXPECT_EQ(folder.count(), 0u);
    EXPECT_EQ(rig.clients->all().size(), kClients);
  }
}

// Real models, whose KV is real: both arithmetics, and a sliding window, of which only what is still read is saved.
struct RealModel {
  const char* name;
  const char* path;
  bool exact;
  std::uint32_t kv_blocks;  // too few for all
};
class SpillReal : public testing::TestWithParam<RealModel> {};

TEST_P(SpillReal, StreamsAreTheUndisturbedOnes) {
  const auto run = [&](std::uint32_t kv_blocks, const std::string& folder, actors::SchedulerStats& stats) {
    device::LoadOptions load;
    load.exact = GetParam().exact;
    load.threads = 1;
    load.kv_blocks = kv_blocks;
    load.block_size = 8;
    auto loaded = device::load_model(GetParam().path, load);
    EXPECT_TRUE(loaded) << loaded.error().what;
    RuntimeOptions options = with_folder(folder);
    auto runtime = Runtime::start(options, std::move(loaded.value().driver), std::move(loaded.value().model));
    EXPECT_TRUE(runtime) << runtime.error().what;
    Clients clients;
    for (std::uint64_t client = 1; client <= 8; ++client) {
      Request r;
      r.client = client;
      for (std::uint32_t i = 0; i < 20 + client; ++i) r.prompt.push_back((client * 37 + i * 11) % 500);
      r.stop.max_tokens = 50;
      r.stop.ignore_eos = true;
      EXPECT_TRUE(runtime.value()->submit(r, clients.callback(client)));
    }
    EXPECT_TRUE(runtime.value()->drain(120s));
    clients.wait_ended(8);
    stats = runtime.value()->metrics().scheduler;
    std::map<std::uint64_t, std::vector<Token>> out;
    for (const auto& [client, record] : clients.all()) {
      EXPECT_EQ(record.tokens.size(), 50u);
      out[client] = record.tokens;
    }
    const auto stopped = runtime.value()->stop();
    EXPECT_TRUE(stopped) << stopped.error().what;
    return out;
  };
  Folder folder;
  actors::SchedulerStats plenty, pressed;
  const auto undisturbed = run(256, "", plenty);
  EXPECT_EQ(run(GetParam().kv_blocks, folder.path(), pressed), undisturbed);
  EXPECT_EQ(plenty.preemptions, 0u);
  EXPECT_GT(pressed.spills, 1u);
  EXPECT_GT(pressed.restores, 1u);
  EXPECT_EQ(pressed.restore_failures, 0u);
  EXPECT_EQ(folder.count(), 0u);
}

INSTANTIATE_TEST_SUITE_P(All, SpillReal,
                         testing::Values(RealModel{"LlamaFast", "tests/golden/tiny-llama", false, 26},
                                         RealModel{"LlamaExact", "tests/golden/tiny-llama", true, 26},
                                         RealModel{"Window", "tests/golden/tiny-mistral-swa", false, 20}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace troupe
