// Two hundred clients at a time stream answers over a tiny real model, and three in ten hang up on the way. Each whole
// answer is the one that the runtime gives the same request alone (what `troupe run` does), and at the end everything is
// back where it was. $TROUPE_STRESS_SECONDS: how long (default: one round of each client).
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <future>
#include <random>

#include "tests/tools/serve/rig.h"

namespace troupe::serve {
namespace {

namespace json = boost::json;

constexpr int kClients = 200;
constexpr int kKinds = 12;

struct Kind {
  std::string body;
  Request request;
  std::string text;  // the answer
};

Kind make_kind(int i) {
  Kind k;
  json::object o{
      {"prompt", json::array{i + 5, 17, 2 * i + 3}}, {"max_tokens", 4 + i * 3}, {"ignore_eos", true}, {"temperature", 0}, {"stream", true}};
  k.request.prompt = {static_cast<Token>(i + 5), 17, static_cast<Token>(2 * i + 3)};
  k.request.stop.max_tokens = static_cast<std::uint32_t>(4 + i * 3);
  k.request.stop.ignore_eos = true;
  if (i % 3 == 1) {
    o["temperature"] = 0.8;
    o["seed"] = i;
    k.request.sampling.temperature = 0.8f;
    k.request.sampling.seed = static_cast<std::uint64_t>(i);
  }
  k.body = json::serialize(o);
  return k;
}

std::string answer_of(Runtime& runtime, Request request, std::uint64_t client) {
  request.client = client;
  std::string text;
  std::promise<void> ended;
  const auto id = runtime.submit(request, [&](const RequestEvent& event) {
    text += event.text;
    if (event.finish != nullptr) ended.set_value();
  });
  EXPECT_TRUE(id) << id.error().what;
  if (id) ended.get_future().wait();
  return text;
}

long resident_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == "VmRSS:") return status >> word, std::stol(word);
  }
  return 0;
}

struct Counts {
  std::atomic<std::int64_t> whole{0}, hung_up{0}, tokens{0}, wrong{0};
};

void be_a_client(const ServeRig& rig, const std::vector<Kind>& kinds, unsigned seed, const std::atomic<bool>& go_on, Counts& counts) {
  std::mt19937 random(seed);
  std::optional<Client> connection;
  do {
    const Kind& kind = kinds[random() % kKinds];
    if (!connection) connection.emplace(rig.server->port());
    connection->send(Client::post_text("/v1/completions", kind.body));
    if (random() % 10 < 3) {
      connection->receive_until("data: ", random() % 6);
      connection.reset();
      ++counts.hung_up;
      continue;
    }
    const Response r = connection->response();
    if (r.status != 200 || text_of(events_of(r.body)) != kind.text) {
      if (counts.wrong++ == 0) ADD_FAILURE() << r.status << ' ' << r.body << "\nfor " << kind.body << "\nwhich alone gives " << kind.text;
    }
    counts.tokens += kind.request.stop.max_tokens;
    ++counts.whole;
  } while (go_on);
}

TEST(ServeStress, StreamsAreRightAndEverythingComesBack) {
  const char* seconds = std::getenv("TROUPE_STRESS_SECONDS");
  RuntimeOptions runtime;
  runtime.max_batch = 32;
  ServeRig rig = tiny_server({}, runtime);
  std::vector<Kind> kinds;
  for (int i = 0; i < kKinds; ++i) {
    kinds.push_back(make_kind(i));
    kinds.back().text = answer_of(*rig.runtime, kinds.back().request, std::uint64_t{1} << 60 | static_cast<unsigned>(i));
    ASSERT_FALSE(kinds.back().text.empty());
  }
  const auto rounds = [&](std::chrono::seconds how_long, Counts& counts) {
    std::atomic<bool> go_on{how_long.count() > 0};
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < kClients; ++i) threads.emplace_back([&, i] { be_a_client(rig, kinds, i, go_on, counts); });
    std::this_thread::sleep_for(how_long);
    go_on = false;
    for (std::thread& t : threads) t.join();
  };
  Counts counts;
  rounds(std::chrono::seconds(0), counts);
  if (seconds != nullptr) {
    const long before = resident_kib();
    rounds(std::chrono::seconds(std::atoi(seconds)), counts);
    const long after = resident_kib();
    std::printf("resident: %ld KiB after one round, %ld KiB at the end\n", before, after);
    EXPECT_LT(after - before, 32 * 1024) << "it leaks";
  }
  std::printf("%ld whole answers, %ld hung up, %ld tokens\n", counts.whole.load(), counts.hung_up.load(), counts.tokens.load());
  EXPECT_GT(counts.whole, 0);
  EXPECT_GT(counts.hung_up, 0);

  eventually([&] { return rig.figure("calls") == 0; });
  const DeviceFacts facts = rig.runtime->facts();
  EXPECT_EQ(facts.free_blocks + facts.cached_blocks, facts.total_blocks) << label(facts);
  EXPECT_EQ(facts.free_slots, facts.total_slots);
  EXPECT_EQ(facts.in_flight, 0u);
  const auto ended = [&](const char* reason) {
    return rig.metric(fmt::format("vllm:request_success_total{{model_name=\"m\",finished_reason=\"{}\"", reason));
  };
  // A client may hang up after the last token was on its way: then its answer was whole.
  EXPECT_GE(ended("length"), static_cast<double>(counts.whole));
  EXPECT_LE(ended("length") + ended("abort"), static_cast<double>(counts.whole + counts.hung_up));
  EXPECT_EQ(ended("error"), 0);
  EXPECT_GE(rig.metric("vllm:generation_tokens_total{"), static_cast<double>(counts.tokens));
  EXPECT_TRUE(rig.server->stop());
}

}  // namespace
}  // namespace troupe::serve
