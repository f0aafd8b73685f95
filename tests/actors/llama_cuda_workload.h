// One workload for the tests of the CUDA path through the runtime: arrivals while others run, a cancel, rows that
// sample, masks that change with the last token.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "tests/actors/llama_cuda_rig.h"

namespace troupe::test {

inline constexpr const char* kModel = "tests/golden/tiny-llama/tiny-llama.Q4_1.gguf";
inline constexpr std::uint64_t kClients = 7, kCancelled = 4;

inline Request request(std::uint64_t client) {
  std::vector<Token> prompt;
  for (std::uint64_t i = 0; i < 3 + client * 5; ++i) prompt.push_back(static_cast<Token>((client * 131 + i * 37) % 512));
  Request r = greedy(client, std::move(prompt), 14);
  if (client == 2 || client >= 5) {
    r.sampling.temperature = 0.8f;
    r.sampling.seed = 99 + client;
  }
  if (client == 5) {
    r.sampling.repetition_penalty = 1.3f;
    r.sampling.frequency_penalty = 0.5f;
  }
  if (client == 6) r.sampling.top_p = 0.9f;
  if (client == 7) r.sampling.logprobs = 3;
  if (client == kCancelled) r.stop.max_tokens = 40;
  return r;
}

inline RuntimeOptions spilling(const std::string& folder) {
  RuntimeOptions options;
  options.spill_dir = testing::TempDir() + "/" + folder;
  options.spill_min_blocks = 1;
  std::filesystem::create_directories(options.spill_dir);
  return options;
}

// What goes on beside a request: before it is submitted, and once it has so many tokens.
struct Beside {
  std::function<void(std::size_t i)> before;
  std::function<void(std::size_t i, CudaRuntime& on)> after;
};

// One request after the other, each when the one before it has so many tokens; the cancelled one is a prefix.
inline Streams run(std::uint32_t depth, std::uint64_t apart, const std::vector<Request>& requests, device::LoadOptions load,
                   const RuntimeOptions& options = {}, const Beside& beside = {}, const std::string& model = kModel) {
  load.depth = depth;
  CudaRuntime on(model, load, options);
  if (!on.started()) {
    ADD_FAILURE() << on.error().what;
    return {};
  }
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Request& r = requests[i];
    if (beside.before) beside.before(i);
    EXPECT_TRUE(on.submit(r));
    on.clients.wait_tokens(r.client, apart);
    if (beside.after) beside.after(i, on);
    if (r.client == kCancelled + 1) (void)on.runtime->cancel(kCancelled);
  }
  return on.finish();
}

// Two prompts of three and two blocks, of kTooFewBlocks, and answers that need two and one more: submitted when the first one has a
// token, the second one gives way behind its prompt.
inline constexpr std::uint32_t kTooFewBlocks = 6;
inline std::vector<Request> second_gives_way() {
  std::vector<Request> out = {request(7), request(5)};
  out[0].stop.max_tokens = 40;
  out[1].stop.max_tokens = 12;
  return out;
}
inline void submit_when_the_last_has_a_token(CudaRuntime& on, const std::vector<Request>& requests) {
  for (const Request& r : requests) {
    ASSERT_TRUE(on.submit(r));
    on.clients.wait_tokens(r.client, 1);
  }
}

class CudaWorkload : public testing::Test {
 protected:
  void SetUp() override {
    begin_cuda(3);
    for (std::uint64_t client = 1; client <= kClients; ++client) requests.push_back(request(client));
  }
  void TearDown() override { end_cuda(); }
  // Masks: once the third token that the request gives anyway was given, its two next ones are barred.
  void mask(const Streams& plain) {
    for (Request& r : requests) {
      if (r.client % 3 != 0) continue;
      const std::vector<Token>& ids = plain.at(r.client);
      r.think = Think{ids[2], ids[3], ids[4]};
    }
  }
  // Each alone on its device, step by step, with kernels that are launched; once for all tests of a program that ask for it.
  Streams alone() {
    using Key = std::tuple<std::string, std::uint64_t, std::vector<Token>, std::uint32_t, float, std::vector<Token>>;
    static std::map<Key, std::vector<Token>> known;
    Streams out;
    for (const Request& r : requests) {
      std::vector<Token> mask;
      if (r.think) mask = {r.think->close, r.think->bar_a, r.think->bar_b};
      std::vector<Token>& ids = known[{model, r.client, r.prompt, r.stop.max_tokens, r.sampling.temperature, mask}];
      if (ids.empty()) {
        device::LoadOptions load = small_load(1);
        load.max_graphs = 0;
        ids = run(1, 0, {r}, load, {}, {}, model)[r.client];
      }
      out[r.client] = ids;
    }
    return out;
  }
  void expect_same(const Streams& want, const Streams& got) {
    ASSERT_EQ(got.size(), want.size());
    for (const auto& [client, ids] : want) {
      std::vector<Token> expected = ids;
      if (client == kCancelled) expected.resize(std::min(expected.size(), got.at(client).size()));
      EXPECT_EQ(got.at(client), expected) << client;
    }
  }
  std::vector<Request> requests;
  std::string model = kModel;
};

}  // namespace troupe::test
