// Rows that the device samples, through a whole runtime on a small model: the same streams as when the host samples each
// row before the next step, at every depth, and most steps run ahead.
#include <cmath>
#include <random>

#include "device/models/load.h"
#include "tests/actors/rig.h"

namespace troupe::test {
namespace {

// A model that leaves sampling to the host.
class HostSamples final : public device::ModelDeviceFeed {
 public:
  explicit HostSamples(std::unique_ptr<ModelDeviceFeed> model) : model_(std::move(model)), info_(model_->info()) {
    info_.supports_device_sampling = false;
    info_.max_sample_words = 0;
  }
  const ModelInfo& info() const override { return info_; }
  std::size_t cells_bytes() const override { return model_->cells_bytes(); }
  std::size_t upload_bytes() const override { return model_->upload_bytes(); }
  bool supports_device_token_feed() const override { return true; }
  Result<device::DevicePtr> decode_batch_fed(const device::StepView& step, device::Stream stream) override {
    return model_->decode_batch_fed(step, stream);
  }
  Result<void> argmax_batch_to_feed(device::DevicePtr logits, const device::StepView& step, device::ReadbackTarget dst, device::Event event,
                                    device::Stream stream) override {
    return model_->argmax_batch_to_feed(logits, step, dst, event, stream);
  }
  void fed_step_settled(Ticket ticket) override { model_->fed_step_settled(ticket); }

 private:
  std::unique_ptr<ModelDeviceFeed> model_;
  ModelInfo info_;
};

struct Answer {
  std::vector<Token> tokens;
  std::vector<float> logprobs;
  std::vector<std::pair<Token, float>> best;
  FinishReason reason = FinishReason::error;
  bool operator==(const Answer&) const = default;
};

// All but a few sample, in every way that a request can ask for; many share a prompt's beginning.
std::vector<Request> requests(std::uint32_t vocab) {
  std::mt19937_64 random(5);
  std::vector<Request> out;
  for (std::uint64_t client = 1; client <= 24; ++client) {
    Request q;
    q.client = client;
    for (int i = 0; i < 40; ++i) q.prompt.push_back(static_cast<Token>((i * 7 + (i < 32 ? 0 : client)) % vocab));
    q.stop.max_tokens = 24 + static_cast<std::uint32_t>(random() % 24);
    q.stop.ignore_eos = client % 3 != 0;
    SamplingParams& p = q.sampling;
    if (client % 6 != 0) {
      p.temperature = client % 2 == 0 ? 0.8f : 1.3f;
      p.seed = random();
    }
    if (client % 4 == 1) p.top_p = 0.9f;
    if (client % 4 == 2) p.top_k = 30;
    if (client % 4 == 3) p.min_p = 0.02f;
    if (client % 3 == 1) p.repetition_penalty = 1.2f;
    if (client % 5 == 1) p.presence_penalty = 0.6f;
    if (client % 5 == 2) p.frequency_penalty = 0.4f;
    if (client % 7 == 1) p.logit_bias = {{3, 2.0f}, {5, -100.0f}, {3, 0.5f}};
    if (client % 4 == 0) p.logprobs = static_cast<std::uint32_t>(client % 8);
    if (client % 5 == 3) {
      q.stop.stop_token_ids = {2, 9, 11, 17};
      q.stop.min_tokens = 10;
    }
    if (client % 8 == 5) q.think = Think{static_cast<Token>(random() % vocab), 4, 6};
    out.push_back(std::move(q));
  }
  return out;
}

struct Served {
  std::map<std::uint64_t, Answer> answers;
  actors::SchedulerStats stats;
};

// kv_blocks: so few that requests preempt each other; 0 = enough.
Served run(std::uint32_t depth, bool on_device, std::uint32_t kv_blocks) {
  device::LoadOptions load;
  load.threads = 1;
  load.depth = depth;
  load.max_batch = 8;
  auto loaded = device::load_model("tests/golden/tiny-llama/tiny-llama.Q8_0.gguf", load);
  if (!loaded) {
    ADD_FAILURE() << loaded.error().what;
    return {};
  }
  std::unique_ptr<device::ModelDeviceFeed> model = std::move(loaded.value().model);
  EXPECT_TRUE(model->info().supports_device_sampling);
  if (!on_device) model = std::make_unique<HostSamples>(std::move(model));
  const std::uint32_t vocab = model->info().vocab_size;
  RuntimeOptions options;
  options.depth = depth;
  options.max_batch = 8;
  options.kv_blocks = kv_blocks;
  auto started = Runtime::start(options, std::move(loaded.value().driver), std::move(model));
  if (!started) {
    ADD_FAILURE() << started.error().what;
    return {};
  }
  Served out;
  std::mutex mutex;
  std::size_t ended = 0;
  const std::vector<Request> all = requests(vocab);
  for (const Request& q : all) {
    const auto id = started.value()->submit(q, [&, client = q.client](const RequestEvent& event) {
      const std::lock_guard lock(mutex);
      Answer& answer = out.answers[client];
      if (event.token != nullptr) {
        answer.tokens.push_back(event.token->id);
        if (!std::isnan(event.token->logprob)) answer.logprobs.push_back(event.token->logprob);
        for (std::uint32_t i = 0; i < event.token->best_size; ++i) answer.best.emplace_back(event.best[i].id, event.best[i].logprob);
      }
      if (event.finish != nullptr) answer.reason = event.finish->reason, ++ended;
    });
    EXPECT_TRUE(id) << id.error().what;
  }
  EXPECT_TRUE(started.value()->drain(std::chrono::minutes(2)));
  out.stats = started.value()->metrics().scheduler;
  const auto stopped = started.value()->stop();
  EXPECT_TRUE(stopped) << stopped.error().what;
  EXPECT_EQ(ended, all.size());
  return out;
}

const Served& by_the_host() {
  static const Served reference = run(1, false, 0);
  return reference;
}

void expect_same(const Served& got) {
  for (const auto& [client, want] : by_the_host().answers) {
    ASSERT_NE(want.reason, FinishReason::error) << client;
    ASSERT_TRUE(got.answers.at(client) == want) << "client " << client << ", " << want.tokens.size() << " tokens";
  }
}

class DeviceSampling : public testing::TestWithParam<std::uint32_t> {};

TEST_P(DeviceSampling, StreamsAreThoseOfTheHost) {
  const Served got = run(GetParam(), true, 0);
  expect_same(got);
  EXPECT_EQ(got.stats.host_chosen, 0u);
  EXPECT_GT(got.stats.device_sampled, 500u);
  if (GetParam() > 1) {
    EXPECT_GT(static_cast<double>(got.stats.steps_ahead), 0.8 * static_cast<double>(got.stats.decode_steps));
  }
}

TEST_P(DeviceSampling, PreemptedRequestsComeBackAsTheyWere) {
  const Served got = run(GetParam(), true, 18);
  expect_same(got);
  EXPECT_GT(got.stats.preemptions, 0u);
}

INSTANTIATE_TEST_SUITE_P(Depths, DeviceSampling, testing::Values(1, 2, 3, 4));

TEST(HostSampling, WaitsForEachTokenAndGivesTheSame) {
  const Served got = run(3, false, 0);
  expect_same(got);
  EXPECT_GT(got.stats.host_chosen, 500u);
  EXPECT_EQ(got.stats.device_sampled, 0u);
}

}  // namespace
}  // namespace troupe::test
