// A runtime on a hybrid model (tiny-qwen35: every other layer is recurrent): at every depth the streams of depth 1, whatever
// arrives, is cancelled, preempted or found in the prefix cache.
#include <gtest/gtest.h>

#include <map>

#include "device/models/load.h"
#include "tests/actors/rig.h"
#include "tests/actors/spill/folder.h"
#include "tests/golden/golden.h"

namespace troupe::test {
namespace {

constexpr const char* kModel = "tests/golden/tiny-qwen35";
constexpr std::uint32_t kBlock = 16;

struct Setting {
  std::uint32_t depth = 1;
  std::uint32_t kv_blocks = 0;  // 0: enough
  std::string spill_dir{};
  std::uint32_t step_tokens = 64;
  bool exact = true;
  bool lora = false;
};

class Server {
 public:
  explicit Server(const Setting& s) {
    device::LoadOptions load;
    load.exact = s.exact;
    load.threads = 1;
    load.block_size = kBlock;
    load.kv_blocks = s.kv_blocks;
    load.max_batch = 6;
    load.depth = s.depth;
    load.max_loras = s.lora ? 2 : 0;
    auto loaded = device::load_model(kModel, load);
    if (!loaded) throw std::runtime_error(loaded.error().what);
    RuntimeOptions options;
    options.depth = s.depth;
    options.max_batch = 6;
    options.step_tokens = s.step_tokens;
    options.trace.flight_dir = testing::TempDir();
    options.spill_dir = s.spill_dir;
    auto started = Runtime::start(options, std::move(loaded.value().driver), std::move(loaded.value().model));
    if (!started) throw std::runtime_error(started.error().what);
    runtime_ = std::move(started.value());
    if (!s.lora) return;
    for (const auto& [name, folder] : {std::pair{"a", "all-r4"}, std::pair{"b", "qo-r8"}}) {
      LoraCommand load_adapter;
      load_adapter.kind = LoraCommand::Kind::promote_disk;
      load_adapter.name = name;
      load_adapter.path = std::string(kModel) + "/adapters/" + folder;
      const auto done = runtime_->lora(load_adapter);
      if (!done) throw std::runtime_error(done.error().what);
    }
  }
  Runtime& runtime() { return *runtime_; }
  Clients& clients() { return clients_; }
  void submit(const Request& r) {
    const auto id = runtime_->submit(r, clients_.callback(r.client));
    EXPECT_TRUE(id) << id.error().what;
    ++submitted_;
  }
  // Waits for everything that was submitted.
  void wait() { clients_.wait_ended(submitted_); }
  Record run(const Request& r) {
    submit(r);
    wait();
    return clients_.record(r.client);
  }
  // Everything came back.
  RuntimeMetrics stop() {
    EXPECT_TRUE(runtime_->drain(std::chrono::minutes(2)));
    const RuntimeMetrics m = runtime_->metrics();
    EXPECT_TRUE(m.facts.has_ssm);
    EXPECT_EQ(m.facts.ssm_used, 0u);
    EXPECT_EQ(m.facts.free_blocks + m.facts.cached_blocks, m.facts.total_blocks);
    const auto stopped = runtime_->stop();
    EXPECT_TRUE(stopped) << stopped.error().what;
    return m;
  }

 private:
  Clients clients_;
  std::unique_ptr<Runtime> runtime_;
  std::size_t submitted_ = 0;
};

Request greedy(std::uint64_t client, std::vector<Token> prompt, std::uint32_t max_tokens) {
  Request r;
  r.client = client;
  r.prompt = std::move(prompt);
  r.stop.max_tokens = max_tokens;
  r.stop.ignore_eos = true;
  return r;
}

std::vector<Token> some_prompt(std::uint64_t seed, std::uint32_t n) {
  std::vector<Token> out;
  for (std::uint32_t i = 0; i < n; ++i) out.push_back(static_cast<Token>((i * 37 + i * i * seed + seed * 101) % 512));
  return out;
}

// Prompts and outputs of many sizes, half of them sampled with penalties, some with stops and a mask that changes.
std::vector<Request> workload() {
  std::vector<Request> out;
  for (std::uint64_t client = 1; client <= 16; ++client) {
    Request r = greedy(client, some_prompt(client, static_cast<std::uint32_t>(3 + client * 23 % 150)),
                       static_cast<std::uint32_t>(10 + client * 17 % 70));
    if (client % 2 == 0) {
      r.sampling.temperature = 0.9f;
      r.sampling.top_p = 0.95f;
      r.sampling.seed = client;
      if (client % 4 == 0) r.sampling.repetition_penalty = 1.2f, r.sampling.frequency_penalty = 0.3f;
    }
    if (client % 3 == 0) r.stop.ignore_eos = false;
    if (client % 5 == 0) r.stop.stop_token_ids = some_prompt(client, 40);
    if (client % 4 == 3) r.think = Think{static_cast<Token>(client * 29 % 512), 7, 9}, r.stop.min_tokens = 4;
    out.push_back(std::move(r));
  }
  return out;
}

using Streams = std::map<std::uint64_t, std::vector<Token>>;

// Half of the requests come while others run; client 5 is cancelled on its way.
Streams streams(const Setting& setting, RuntimeMetrics* metrics = nullptr) {
  Server server(setting);
  std::vector<Request> all = workload();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (setting.lora && i % 3 != 0) all[i].adapter = i % 3 == 1 ? "a" : "b";
    if (i >= all.size() / 2) server.clients().wait_tokens(all[i - all.size() / 2].client, 3 + i % 5);
    server.submit(all[i]);
    if (i == all.size() / 2) (void)server.runtime().cancel(5);
  }
  server.wait();
  const RuntimeMetrics m = server.stop();
  if (metrics != nullptr) *metrics = m;
  Streams out;
  for (const Request& r : all) {
    const Record record = server.clients().record(r.client);
    EXPECT_EQ(record.wrong, "");
    EXPECT_NE(record.finish->reason, FinishReason::error) << record.finish->error.what;
    out[r.client] = record.tokens;
  }
  return out;
}

void expect_same(Streams got, Streams want) {
  auto &a = got[5], &b = want[5];  // was cancelled: one begins the other
  const std::size_t n = std::min(a.size(), b.size());
  a.resize(n), b.resize(n);
  for (const auto& [client, tokens] : want) EXPECT_EQ(got[client], tokens) << "client " << client;
}

class HybridModel : public testing::TestWithParam<std::uint32_t> {};

TEST_P(HybridModel, GoldenIds) {
  const auto cases = golden::read_cases(std::string(kModel) + "/golden.json");
  Server server({.depth = GetParam(), .step_tokens = 23});
  for (std::size_t k = 0; k < cases.size(); ++k)
    server.submit(greedy(k + 1, cases[k].prompt, static_cast<std::uint32_t>(cases[k].greedy.size())));
  server.wait();
  (void)server.stop();
  std::size_t compared = 0;
  for (std::size_t k = 0; k < cases.size(); ++k) {
    const golden::Case& c = cases[k];
    const Record got = server.clients().record(k + 1);
    ASSERT_EQ(got.tokens.size(), c.greedy.size());
    for (std::size_t i = 0; i < c.greedy.size(); ++i) {
      // Where two ids are nearly as likely, either may follow, and the streams part.
      if (c.margin[i] < 0.01 * c.logit_std && got.tokens[i] != c.greedy[i]) break;
      ASSERT_EQ(got.tokens[i], c.greedy[i]) << "case " << k << " token " << i;
      ++compared;
    }
  }
  EXPECT_GE(compared, cases.size() * 20);
}

TEST_P(HybridModel, StreamsAreThoseOfDepthOne) {
  for (const bool exact : {true, false}) {
    const Streams want = streams({.depth = 1, .exact = exact});
    RuntimeMetrics m;
    expect_same(streams({.depth = GetParam(), .step_tokens = 37, .exact = exact}, &m), want);
    if (GetParam() > 1) {
      EXPECT_GE(static_cast<double>(m.scheduler.steps_ahead), 0.8 * static_cast<double>(m.scheduler.decode_steps));
    }
    EXPECT_EQ(m.scheduler.host_chosen, 0u);
  }
}

// Blocks for two of them, so that requests give theirs up and are computed again.
TEST_P(HybridModel, PreemptedRequestsAreComputedAgain) {
  const Streams want = streams({.depth = 1});
  RuntimeMetrics m;
  expect_same(streams({.depth = GetParam(), .kv_blocks = 20}, &m), want);
  EXPECT_GT(m.scheduler.preemptions, 0u);
}

// The same under two adapters and the base model, side by side; and their state goes to files and comes back.
TEST_P(HybridModel, PreemptedRequestsAreSavedAndBroughtBack) {
  for (const bool exact : {true, false}) {
    const Streams want = streams({.depth = 1, .exact = exact, .lora = true});
    EXPECT_NE(want, streams({.depth = 1, .exact = exact}));
    RuntimeMetrics again, back;
    expect_same(streams({.depth = GetParam(), .kv_blocks = 20, .exact = exact, .lora = true}, &again), want);
    EXPECT_GT(again.scheduler.preemptions, 0u);
    EXPECT_EQ(again.scheduler.restores, 0u);
    Folder folder;
    expect_same(streams({.depth = GetParam(), .kv_blocks = 20, .spill_dir = folder.path(), .exact = exact, .lora = true}, &back), want);
    EXPECT_GT(back.scheduler.restores, 0u);
    EXPECT_EQ(back.scheduler.spill_failures + back.scheduler.restore_failures, 0u);
    EXPECT_EQ(folder.count(), 0u);
    if (GetParam() == 1) continue;
    for (const RuntimeMetrics& m : {again, back})
      EXPECT_GE(static_cast<double>(m.scheduler.steps_ahead), 0.8 * static_cast<double>(m.scheduler.decode_steps));
  }
}

INSTANTIATE_TEST_SUITE_P(Depths, HybridModel, testing::Values(1, 2, 3, 4));

// Alone on a server that knows nothing.
std::vector<Token> afresh(const Request& r) {
  Server server({.depth = 1});
  const Record record = server.run(r);
  EXPECT_EQ(record.finish->usage.cached_tokens, 0u);
  (void)server.stop();
  return record.tokens;
}

class HybridPrefix : public testing::TestWithParam<std::uint32_t> {};

TEST_P(HybridPrefix, ASecondRequestComputesOnlyTheRest) {
  Server server({.depth = GetParam()});
  const std::vector<Token> shared = some_prompt(3, 200);
  const auto with = [&](std::uint64_t client, std::vector<Token> prompt, std::uint32_t more) {
    const auto tail = some_prompt(client + 40, more);
    prompt.insert(prompt.end(), tail.begin(), tail.end());
    return greedy(client, std::move(prompt), 20);
  };
  const auto prefilled = [&] { return server.runtime().metrics().scheduler.prefill_tokens; };

  const Request first = greedy(1, shared, 40);
  const Record one = server.run(first);
  ASSERT_EQ(prefilled(), 200u);
  // The state at 192, the last full block of the first prompt, was kept.
  const Request second = with(2, shared, 30);
  const Record two = server.run(second);
  EXPECT_EQ(two.finish->usage.cached_tokens, 192u);
  EXPECT_EQ(prefilled(), 200u + 38u);
  EXPECT_EQ(two.tokens, afresh(second));
  // The next turn of the first request's conversation: the state behind the answer's last full block, 224 + 15 tokens are known.
  std::vector<Token> talk = shared;
  talk.insert(talk.end(), one.tokens.begin(), one.tokens.end());
  const Request turn = with(3, talk, 21);
  const Record three = server.run(turn);
  EXPECT_EQ(three.finish->usage.cached_tokens, 224u);
  EXPECT_EQ(three.tokens, afresh(turn));
  // Prompts that part at 100: the second one of them finds blocks up to 96 and no state there, and leaves one for the third.
  const std::vector<Token> stem = some_prompt(9, 100);
  (void)server.run(with(4, stem, 80));
  const Record branch = server.run(with(5, stem, 60));
  EXPECT_EQ(branch.finish->usage.cached_tokens, 0u);
  const Request sixth = with(6, stem, 50);
  const Record six = server.run(sixth);
  EXPECT_EQ(six.finish->usage.cached_tokens, 96u);
  EXPECT_EQ(six.tokens, afresh(sixth));
  EXPECT_GT(server.stop().facts.ssm_snapshots, 0u);
}

// More prompts than versions: snapshots are given up, the one that was used last not.
TEST_P(HybridPrefix, SnapshotsThatWereNotUsedLongestGoFirst) {
  Server server({.depth = GetParam()});
  const Request often = greedy(1, some_prompt(1, 50), 4);
  const std::vector<Token> want = afresh(often);
  (void)server.run(often);
  const std::uint32_t total = server.runtime().metrics().facts.ssm_total;
  for (std::uint32_t i = 0; i < total + 10; ++i) {
    (void)server.run(greedy(100 + i, some_prompt(1000 + i, 40), 2));
    if (i % 8 != 0) continue;
    Request once_more = often;
    once_more.client = 10'000 + i;
    const Record again = server.run(once_more);
    EXPECT_EQ(again.finish->usage.cached_tokens, 48u);
    EXPECT_EQ(again.tokens, want);
  }
  EXPECT_EQ(server.run(greedy(2, some_prompt(1000, 40), 2)).finish->usage.cached_tokens, 0u) << "the oldest is gone";
  (void)server.stop();
}

INSTANTIATE_TEST_SUITE_P(Depths, HybridPrefix, testing::Values(1, 2, 4));

}  // namespace
}  // namespace troupe::test
