// Bodies, pieces and calls, without a server.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <future>

#include "tools/serve/api_request.h"
#include "tools/serve/call.h"
#include "tools/serve/http.h"
#include "tools/serve/request_reader.h"
#include "tools/serve/workers.h"

namespace troupe::serve {
namespace {

TEST(ApiRequest, ReadsEveryField) {
  const auto body =
      parse_generate(Api::completions, R"({"model": "m", "prompt": ["a", [1, 2]], "max_tokens": 9, "min_tokens": 2, "temperature": 0.5,
      "top_k": 4, "top_p": 0.75, "min_p": 0.25, "repetition_penalty": 1.5, "presence_penalty": -1, "frequency_penalty": 2, "logit_bias": {"5": -1.5},
      "seed": 7, "stop": "x", "stop_token_ids": [3], "ignore_eos": true, "logprobs": 2, "n": 3, "stream": true, "user": "u", "suffix": null,
      "stream_options": {"include_usage": true, "continuous_usage_stats": true}})");
  ASSERT_TRUE(body) << body.error().message;
  const GenerateBody& b = body.value();
  EXPECT_EQ(b.model, "m");
  ASSERT_EQ(b.prompts.size(), 2u);
  EXPECT_EQ(std::get<std::vector<Token>>(b.prompts[1]), (std::vector<Token>{1, 2}));
  EXPECT_EQ(b.n, 3u);
  EXPECT_TRUE(b.stream && b.include_usage && b.continuous_usage && !b.echo && !b.all_that_fits);
  const SamplingParams& s = b.request.sampling;
  EXPECT_TRUE(s.temperature == 0.5f && s.top_k == 4 && s.top_p == 0.75f && s.min_p == 0.25f && s.repetition_penalty == 1.5f);
  EXPECT_TRUE(s.presence_penalty == -1 && s.frequency_penalty == 2 && s.logit_bias.size() == 1 && *s.seed == 7 && *s.logprobs == 2);
  EXPECT_TRUE(b.request.stop.max_tokens == 9 && b.request.stop.min_tokens == 2 && b.request.stop.ignore_eos);
  EXPECT_EQ(b.request.stop.stop, std::vector<std::string>{"x"});
}

TEST(ApiRequest, DefaultsAreOpenAis) {
  const auto completion = parse_generate(Api::completions, R"({"prompt": "a", "top_k": -1})");
  ASSERT_TRUE(completion);
  EXPECT_EQ(completion.value().request.sampling.temperature, 1);
  EXPECT_EQ(completion.value().request.stop.max_tokens, 16u);
  const auto chat = parse_generate(
      Api::chat, R"({"messages": [{"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]})");
  ASSERT_TRUE(chat);
  EXPECT_TRUE(chat.value().all_that_fits);
  EXPECT_EQ(chat.value().messages[0].role, "system");
  EXPECT_EQ(chat.value().messages[0].content, "ab");
}

TEST(ApiRequest, ChatSpellsLogprobsAsASwitchAndACount) {
  const std::string head = R"({"messages": [{"role": "user", "content": "a"}], )";
  EXPECT_EQ(*parse_generate(Api::chat, head + R"("logprobs": true, "top_logprobs": 5})").value().request.sampling.logprobs, 5u);
  EXPECT_EQ(*parse_generate(Api::chat, head + R"("logprobs": true})").value().request.sampling.logprobs, 0u);
  EXPECT_FALSE(parse_generate(Api::chat, head + R"("logprobs": false})").value().request.sampling.logprobs);
  EXPECT_EQ(parse_generate(Api::chat, head + R"("top_logprobs": 5})").error().param, "top_logprobs");
  EXPECT_EQ(parse_generate(Api::completions, R"({"prompt": "a", "echo": true, "logprobs": 1})").error().param, "echo");
  EXPECT_EQ(parse_generate(Api::completions, R"({"prompt": "a", "prompt_logprobs": 1})").error().param, "prompt_logprobs");
  EXPECT_EQ(parse_generate(Api::chat, head + R"("tools": [{}]})").error().param, "tools");
  EXPECT_EQ(parse_generate(Api::chat, head + R"("response_format": {"type": "json_object"}})").error().param, "response_format");
  EXPECT_EQ(parse_generate(Api::chat, R"({"messages": [{"role": "tool", "content": "a"}]})").error().param, "messages");
  EXPECT_EQ(parse_generate(Api::chat, R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})").error().param, "messages");
}

struct Counter final : CallObserver {
  void on_token(double, std::optional<double> since_last) override { since_last ? ++later : ++first; }
  void on_finish(const Finish&, std::uint32_t, double, bool abandoned) override { abandoned ? ++given_up : ++finished; }
  void on_done(std::uint64_t) override { ++done; }
  int first = 0, later = 0, finished = 0, given_up = 0, done = 0;
};

struct CallRig {
  std::shared_ptr<Counter> counter = std::make_shared<Counter>();
  int wakes = 0;
  std::shared_ptr<Call> call;
  std::vector<RequestCallback> callbacks;
  CallRig(std::uint32_t choices, std::size_t limit) : call(std::make_shared<Call>(10, choices, limit, counter, [this] { ++wakes; })) {
    for (std::uint32_t i = 0; i < choices; ++i) callbacks.push_back(call->callback(i));
  }
  void token(std::uint32_t choice, std::string_view text) {
    const TokenEvent token;
    callbacks[choice]({{}, &token, nullptr, text, nullptr});
  }
  void finish(std::uint32_t choice) {
    const Finish finish;
    callbacks[choice]({{}, nullptr, &finish, "", nullptr});
  }
};

TEST(Call, WakesOnceUntilTaken) {
  CallRig r(2, 0);
  r.token(0, "a");
  r.token(1, "b");
  EXPECT_EQ(r.wakes, 1);
  EXPECT_EQ(r.call->take().size(), 2u);
  r.token(0, "c");
  EXPECT_EQ(r.wakes, 2);
  r.finish(0);
  EXPECT_FALSE(r.call->done());
  r.finish(1);
  EXPECT_TRUE(r.call->done());
  EXPECT_EQ(r.call->take().size(), 3u);
  EXPECT_EQ(r.counter->first, 2);
  EXPECT_EQ(r.counter->later, 1);
  EXPECT_EQ(r.counter->done, 1);
}

TEST(Call, OverflowsOnceAndKeepsNothingMore) {
  CallRig r(1, 4096);
  for (int i = 0; i < 1000; ++i) r.token(0, "some text");
  EXPECT_TRUE(r.call->overflowed());
  EXPECT_EQ(r.wakes, 2) << "for the first piece, and for the overflow";
  EXPECT_TRUE(r.call->take().empty());
  EXPECT_EQ(r.counter->later, 999);
  CallRig reader(1, 4096);
  for (int i = 0; i < 1000; ++i) {
    reader.token(0, "some text");
    reader.call->take();
  }
  EXPECT_FALSE(reader.call->overflowed());
}

TEST(Call, LivesUntilEveryRequestHasEndedAlsoWhenAbandoned) {
  CallRig r(3, 0);
  r.call->not_submitted(2);
  r.token(0, "a");
  r.call->abandon();
  EXPECT_TRUE(r.call->take().empty());
  r.token(0, "b");
  r.finish(0);
  EXPECT_EQ(r.wakes, 1);
  EXPECT_EQ(r.counter->done, 0);
  r.finish(1);
  EXPECT_EQ(r.counter->done, 1);
  EXPECT_EQ(r.counter->given_up, 2);
}

// What shows others' prompts is for whoever has a key; where there are none, for who is on the machine.
TEST(Http, WhoMaySeeWhat) {
  HttpRequest r;
  r.path = "/debug/trace";
  r.method = "GET";
  const Access access = route(r).value().access;
  EXPECT_TRUE(authorize(r, access, {}, true));
  EXPECT_EQ(authorize(r, access, {}, false).error().status, 403);
  EXPECT_EQ(authorize(r, access, {"k"}, true).error().status, 401);
  EXPECT_TRUE(authorize(r, Access::key, {}, false));
  EXPECT_TRUE(authorize(r, Access::everybody, {"k"}, false));
  r.authorization = "Bearer k";
  EXPECT_TRUE(authorize(r, access, {"k"}, false));
}

TEST(Http, RetryHintsAreInSecondsRoundedUpAndInMilliseconds) {
  ApiError error{429, "rate_limit_error", "", "", ""};
  error.retry_after = std::chrono::milliseconds(2001);
  const auto headers = to_reply(error).headers;
  ASSERT_EQ(headers.size(), 2u);
  EXPECT_EQ(headers[0], (std::pair<std::string, std::string>("Retry-After", "3")));
  EXPECT_EQ(headers[1], (std::pair<std::string, std::string>("retry-after-ms", "2001")));
}

TEST(Http, RoutesAndRefuses) {
  HttpRequest r;
  r.method = "POST";
  r.path = "/v1/completions";
  r.content_type = "application/json";
  EXPECT_EQ(route(r).value().endpoint, Endpoint::completions);
  r.content_type = "text/plain";
  EXPECT_EQ(route(r).error().status, 415);
  r.method = "DELETE";
  EXPECT_EQ(route(r).error().status, 405);
  r.path = "/v1/models/";
  EXPECT_EQ(route(r).error().status, 404);
}

TEST(RequestReader, TakesChunksInPiecesOfAnySize) {
  const std::string head = "POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const std::string body : {"", "a", "0", "000", "0\r\n0\r\n"}) {
    for (const std::string trailers : {"", "A: b\r\n"}) {
      const std::string chunk = body.empty() ? "" : fmt::format("{:x};a=b\r\n{}\r\n", body.size(), body);
      const std::string rest = chunk + "0\r\n" + trailers + "\r\n";
      for (std::size_t piece = 1; piece <= 9; ++piece) {
        RequestReader reader(1024, 1024);
        auto status = RequestReader::Status::nothing;
        const auto feed = [&](std::string_view bytes) {
          ASSERT_NE(status, RequestReader::Status::whole);
          std::copy(bytes.begin(), bytes.end(), reader.room().data());
          reader.arrived(bytes.size());
          const auto parsed = reader.parse();
          ASSERT_TRUE(parsed) << parsed.error().message;
          status = parsed.value();
        };
        feed(head + rest.substr(0, piece));
        for (std::size_t at = piece; at < rest.size(); at += piece) feed(std::string_view(rest).substr(at, piece));
        ASSERT_EQ(status, RequestReader::Status::whole) << rest << " by " << piece;
        EXPECT_EQ(reader.take().body, body);
      }
    }
  }
}

TEST(Workers, LargeBodiesHoldUpTheirLikeOnly) {
  Workers workers(1);
  std::promise<void> go_on, started, small;
  bool second = false;
  workers.post(Workers::kLarge, [&] {
    started.set_value();
    go_on.get_future().wait();
  });
  workers.post(Workers::kLarge, [&] { second = true; });
  started.get_future().wait();
  workers.post(Workers::kLarge - 1, [&] { small.set_value(); });
  small.get_future().wait();
  go_on.set_value();
  workers.join();
  EXPECT_TRUE(second);
}

}  // namespace
}  // namespace troupe::serve
