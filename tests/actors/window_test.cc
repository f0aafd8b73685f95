// A runtime on models with a sliding window, in KV pools that are smaller than what its streams would need without: the
// blocks behind the window go back while steps run ahead.
#include <gtest/gtest.h>

#include "device/models/load.h"
#include "tests/actors/rig.h"
#include "tests/device/models/llama_rig.h"
#include "tests/golden/golden.h"

namespace troupe {
namespace {

using test::Clients;
using test::Record;

constexpr const char* kModel = "tests/golden/tiny-mistral-swa";  // a window of 40 in a context of 512
constexpr std::uint32_t kBlock = 16, kBlocks = 12;               // 192 positions; a window takes at most 4 blocks

Request greedy(std::uint64_t client, std::vector<Token> prompt, std::uint32_t max_tokens) {
  Request r;
  r.client = client;
  r.prompt = std::move(prompt);
  r.stop.max_tokens = max_tokens;
  r.stop.ignore_eos = true;
  return r;
}

class Window : public testing::TestWithParam<std::uint32_t> {
 protected:
  // Runs them together and checks that everything came back.
  std::vector<std::vector<Token>> run(const std::vector<Request>& requests, bool exact) {
    device::LoadOptions load;
    load.exact = exact;
    load.threads = 1;
    load.block_size = kBlock;
    load.kv_blocks = kBlocks;
    load.max_batch = 8;
    load.step_tokens = 64;
    load.depth = GetParam();
    auto loaded = device::load_model(kModel, load);
    EXPECT_TRUE(loaded) << loaded.error().what;
    EXPECT_EQ(loaded.value().model->info().window, 40u);
    RuntimeOptions options;
    options.depth = GetParam();
    options.max_batch = 8;
    auto runtime = Runtime::start(options, std::move(loaded.value().driver), std::move(loaded.value().model));
    EXPECT_TRUE(runtime) << runtime.error().what;
    Clients clients;
    for (const Request& r : requests) {
      const auto id = runtime.value()->submit(r, clients.callback(r.client));
      EXPECT_TRUE(id) << id.error().what;
    }
    clients.wait_ended(requests.size());
    std::vector<std::vector<Token>> out;
    for (const Request& r : requests) {
      const Record record = clients.record(r.client);
      EXPECT_EQ(record.wrong, "");
      EXPECT_EQ(record.finish->reason, FinishReason::length) << record.finish->error.what;
      out.push_back(record.tokens);
    }
    EXPECT_TRUE(runtime.value()->drain(std::chrono::seconds(60)));
    const RuntimeMetrics m = runtime.value()->metrics();
    EXPECT_EQ(m.facts.free_blocks + m.facts.cached_blocks, kBlocks);
    EXPECT_EQ(m.facts.fenced_blocks, 0u);
    EXPECT_TRUE(runtime.value()->stop());
    return out;
  }
};

TEST_P(Window, GoldenIds) {
  const auto cases = golden::read_cases(std::string(kModel) + "/golden.json");
  std::vector<Request> requests;
  for (const golden::Case& c : cases)
    requests.push_back(greedy(requests.size() + 1, c.prompt, static_cast<std::uint32_t>(c.greedy.size())));
  const auto got = run(requests, true);
  std::size_t compared = 0;
  for (std::size_t k = 0; k < cases.size(); ++k) {
    const golden::Case& c = cases[k];
    for (std::size_t i = 0; i < c.greedy.size(); ++i) {
      // Where two ids are nearly as likely, either may follow, and the streams part.
      if (c.margin[i] < 0.01 * c.logit_std && got[k][i] != c.greedy[i]) break;
      ASSERT_EQ(got[k][i], c.greedy[i]) << "case " << k << " token " << i;
      ++compared;
    }
  }
  EXPECT_GE(compared, cases.size() * 20);
}

// Several streams of 400 tokens, ten windows long, against a model that keeps every block.
TEST_P(Window, StreamsFarLongerThanThePool) {
  for (const bool exact : {true, false}) {
    std::vector<Request> requests;
    for (std::uint64_t client = 1; client <= 4; ++client) {
      std::vector<Token> prompt;
      for (std::uint32_t i = 0; i < 20 * client + 7; ++i) prompt.push_back(static_cast<Token>((i * 37 + client * 11) % 512));
      requests.push_back(greedy(client, std::move(prompt), 400));
    }
    device::LlamaOptions keep;
    keep.exact = exact;
    keep.block_size = kBlock;
    keep.kv_blocks = 128;
    device::LlamaRig rig(kModel, keep);
    const auto got = run(requests, exact);
    for (std::uint32_t k = 0; k < requests.size(); ++k) {
      auto row = rig.run({{.slot = k, .position = 0, .ids = requests[k].prompt}}).rows[0];
      auto position = static_cast<std::uint32_t>(requests[k].prompt.size());
      for (std::size_t i = 0; i < 400; ++i, ++position) {
        ASSERT_EQ(got[k][i], row.id) << "client " << k + 1 << " token " << i;
        if (i < 399) row = rig.run({{.slot = k, .position = position, .ids = {row.id}}}).rows[0];
      }
    }
  }
}

// Rows are done again from their settled length, and read what the window of that length has.
TEST_P(Window, FailedRowsAreDoneAgain) {
  device::ScriptedOptions script;
  script.window = 24;
  script.block_size = 8;
  script.kv_blocks = 16;  // 128 positions for three streams of 330
  for (std::uint64_t step = 30; step < 300; step += 7) {
    using Kind = device::ScriptedFault::Kind;
    script.faults.push_back({step % 2 == 0 ? Kind::fail_step : Kind::nan_row, step, static_cast<std::uint32_t>(step % 3)});
  }
  RuntimeOptions options;
  options.depth = GetParam();
  test::Rig rig = test::make_rig(options, script);
  std::vector<Request> requests;
  for (std::uint64_t client = 1; client <= 3; ++client) requests.push_back(test::make_request(client, 30, 300, script));
  for (const Request& r : requests) {
    const auto id = rig.runtime->submit(r, rig.clients->callback(r.client));
    ASSERT_TRUE(id) << id.error().what;
  }
  rig.clients->wait_ended(requests.size());
  for (const Request& r : requests) {
    const Record record = rig.clients->record(r.client);
    EXPECT_EQ(record.wrong, "");
    EXPECT_EQ(record.finish->reason, FinishReason::length) << record.finish->error.what;
    EXPECT_EQ(record.tokens, test::expected(r, script)) << "client " << r.client;
  }
  EXPECT_TRUE(rig.runtime->stop());
}

INSTANTIATE_TEST_SUITE_P(Depths, Window, testing::Values(1u, 2u), [](const auto& info) { return "depth" + std::to_string(info.param); });

}  // namespace
}  // namespace troupe
