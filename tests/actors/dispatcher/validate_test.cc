#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "actors/dispatcher/core.h"

namespace troupe::actors {
namespace {

ModelInfo model() {
  ModelInfo m;
  m.vocab_size = 100;
  m.context_length = 64;
  m.block_size = 16;
  m.kv_blocks = 3;
  m.n_slots = 4;
  return m;
}

Request good() {
  Request r;
  r.client = 1;
  r.prompt = {1, 2, 3};
  r.stop.max_tokens = 8;
  return r;
}

struct Case {
  const char* name;
  std::function<void(Request&)> spoil;
  std::string says;  // part of the sentence
};

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

class Bad : public testing::TestWithParam<Case> {};

TEST_P(Bad, IsRefusedWithWhatToChange) {
  Request r = good();
  ASSERT_EQ(validate(r, model()).code, ErrorCode::none);
  GetParam().spoil(r);
  const Error error = validate(r, model());
  EXPECT_EQ(error.code, ErrorCode::bad_request) << error.what;
  EXPECT_NE(error.what.find(GetParam().says), std::string::npos) << error.what;
}

INSTANTIATE_TEST_SUITE_P(
    Requests, Bad,
    testing::Values(Case{"empty_prompt", [](Request& r) { r.prompt.clear(); }, "prompt is empty"},
                    Case{"prompt_fills_context", [](Request& r) { r.prompt.assign(64, 1); }, "64 tokens and the model's context 64"},
                    Case{"prompt_id", [](Request& r) { r.prompt[1] = 100; },
                         "prompt: token id 100 is outside the vocabulary (ids are 0 to 99)"},
                    Case{"stop_id", [](Request& r) { r.stop.stop_token_ids = {100}; }, "stop_token_ids: token id 100"},
                    Case{"bias_id",
                         [](Request& r) {
                           r.sampling.logit_bias = {{100, 1.0f}};
                         },
                         "logit_bias: token id 100"},
                    Case{"bias_nan",
                         [](Request& r) {
                           r.sampling.logit_bias = {{1, kNan}};
                         },
                         "logit_bias of token 1"},
                    Case{"think_close",
                         [](Request& r) {
                           r.think = Think{100, 1, 2};
                         },
                         "think: token id 100"},
                    Case{"think_bar",
                         [](Request& r) {
                           r.think = Think{1, 2, 0xFFFFFFFFu};
                         },
                         "think: token id"},
                    Case{"max_tokens_0", [](Request& r) { r.stop.max_tokens = 0; }, "max_tokens is 0"},
                    Case{"min_above_max", [](Request& r) { r.stop.min_tokens = 9; }, "min_tokens is 9 and max_tokens 8"},
                    Case{"temperature_negative", [](Request& r) { r.sampling.temperature = -1; }, "temperature is -1"},
                    Case{"temperature_nan", [](Request& r) { r.sampling.temperature = kNan; }, "temperature is nan"},
                    Case{"temperature_inf", [](Request& r) { r.sampling.temperature = kInf; }, "temperature is inf"},
                    Case{"top_p_0", [](Request& r) { r.sampling.top_p = 0; }, "top_p is 0"},
                    Case{"top_p_above_1", [](Request& r) { r.sampling.top_p = 1.5f; }, "top_p is 1.5"},
                    Case{"top_p_nan", [](Request& r) { r.sampling.top_p = kNan; }, "top_p is nan"},
                    Case{"min_p_negative", [](Request& r) { r.sampling.min_p = -0.5f; }, "min_p is -0.5"},
                    Case{"min_p_above_1", [](Request& r) { r.sampling.min_p = 2; }, "min_p is 2"},
                    Case{"repetition_0", [](Request& r) { r.sampling.repetition_penalty = 0; }, "repetition_penalty is 0"},
                    Case{"presence", [](Request& r) { r.sampling.presence_penalty = 3; }, "presence_penalty is 3"},
                    Case{"frequency", [](Request& r) { r.sampling.frequency_penalty = -3; }, "frequency_penalty is -3"},
                    Case{"logprobs", [](Request& r) { r.sampling.logprobs = 21; }, "at most 20"},
                    Case{"stop_string_empty", [](Request& r) { r.stop.stop = {""}; }, "stop string is empty"},
                    Case{"stop_strings", [](Request& r) { r.stop.stop.assign(65, "x"); }, "at most 64"},
                    Case{"stop_string_long", [](Request& r) { r.stop.stop = {std::string(1025, 'x')}; }, "1025 bytes; at most 1024"},
                    Case{"stop_ids", [](Request& r) { r.stop.stop_token_ids.assign(257, 1); }, "257 stop_token_ids; at most 256"},
                    Case{"biases",
                         [](Request& r) {
                           r.sampling.logit_bias.assign(101, TokenBias{1, 1});
                         },
                         "101 entries and the vocabulary 100"},
                    Case{"deadline", [](Request& r) { r.deadline = TimeNs{0}; }, "deadline"},
                    // 3 + 47 - 1 = 49 positions: one more than three blocks hold.
                    Case{"kv_pool", [](Request& r) { r.stop.max_tokens = 47; }, "need 4 KV blocks and the pool has 3"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Validate, TakesWhatJustFits) {
  Request r = good();
  r.stop.max_tokens = 46;  // 48 positions
  EXPECT_EQ(validate(r, model()).code, ErrorCode::none);
  r = good();
  r.sampling.logprobs = 20;
  r.sampling.top_p = 1;
  r.sampling.min_p = 1;
  r.sampling.presence_penalty = -2;
  r.stop.min_tokens = 8;
  r.prompt = {99};
  EXPECT_EQ(validate(r, model()).code, ErrorCode::none);
}

// The context ends a request before max_tokens does: it needs no more blocks than the context has.
TEST(Validate, CountsNoPositionsBeyondTheContext) {
  ModelInfo m = model();
  m.kv_blocks = 4;
  Request r = good();
  r.stop.max_tokens = 1'000'000'000;
  EXPECT_EQ(validate(r, m).code, ErrorCode::none);
}

// With a window a request needs what one position reads, however long it gets.
TEST(Validate, CountsTheBlocksOfTheWindowOnly) {
  ModelInfo m = model();
  Request r = good();
  r.stop.max_tokens = 61;
  EXPECT_EQ(validate(r, m).code, ErrorCode::bad_request);
  m.window = 2 * m.block_size + 1;  // 3 blocks, wherever it begins
  EXPECT_EQ(validate(r, m).code, ErrorCode::none);
  m.window = 2 * m.block_size + 2;  // 4, if it begins at a block's last position
  EXPECT_EQ(validate(r, m).code, ErrorCode::bad_request);
}

TEST(Validate, AdaptersAndLogitsThatThereAreNot) {
  Request r = good();
  r.adapter = "pirate";
  EXPECT_EQ(validate(r, model()).code, ErrorCode::not_found);
  r = good();
  r.sampling.temperature = 1;
  ModelInfo m = model();
  m.max_logits_rows = 0;
  EXPECT_EQ(validate(r, m).code, ErrorCode::unsupported);
  m.supports_device_sampling = true;
  EXPECT_EQ(validate(r, m).code, ErrorCode::none);
  r.sampling.logit_bias.assign(SamplingParams::kMaxDeviceBiases + 1, {1, 0.5f});
  m.vocab_size = 1000;
  EXPECT_EQ(validate(r, m).code, ErrorCode::unsupported);  // so many only the host adds
}

}  // namespace
}  // namespace troupe::actors
