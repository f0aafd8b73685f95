// The endpoints over a tiny real model: shapes, streams, errors, and that the books add up.
#include <fstream>

#include "tests/tools/serve/rig.h"

namespace troupe::serve {
namespace {

namespace json = boost::json;

class Serve : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { rig_ = new ServeRig(tiny_server()); }
  static void TearDownTestSuite() {
    EXPECT_TRUE(rig_->server->stop());
    delete rig_;
  }
  static ServeRig& rig() { return *rig_; }
  Client client_ = rig().client();

 private:
  static ServeRig* rig_;
};
ServeRig* Serve::rig_ = nullptr;

TEST_F(Serve, ListsItsModel) {
  const json::value list = client_.get("/v1/models").json();
  EXPECT_EQ(list.at("data").at(0).at("id").as_string(), "m");
  EXPECT_EQ(client_.get("/v1/models/m").json(), list.at("data").at(0));
  EXPECT_EQ(client_.get("/v1/models/%6d").status, 200);
  EXPECT_EQ(client_.get("/v1/models/x").status, 404);
}

TEST_F(Serve, AStreamSaysWhatTheWholeAnswerSays) {
  const Response whole = client_.post("/v1/completions", greedy("5, 17, 9", 40));
  ASSERT_EQ(whole.status, 200) << whole.body;
  const std::string text(whole.json().at("choices").at(0).at("text").as_string());
  EXPECT_FALSE(text.empty());
  const Response streamed =
      client_.post("/v1/completions", greedy("5, 17, 9", 40, R"(, "stream": true, "stream_options": {"include_usage": true})"));
  EXPECT_EQ(streamed.content_type, "text/event-stream; charset=utf-8");
  const auto events = events_of(streamed.body);
  EXPECT_EQ(text_of(events), text);
  EXPECT_EQ(events.back().at("usage").at("completion_tokens").as_int64(), 40);
  EXPECT_EQ(events.back().at("usage").at("prompt_tokens").as_int64(), 3);
  EXPECT_TRUE(events.front().at("usage").is_null());
}

// The same seed gives the same answer, alone and as the first of several.
TEST_F(Serve, SeedsMakeAnswersRepeatable) {
  const auto ask = [&](int n) {
    return client_
        .post("/v1/completions", fmt::format(R"({{"prompt": [3, 4], "seed": 11, "max_tokens": 20, "ignore_eos": true, "n": {}}})", n))
        .json();
  };
  const json::value one = ask(1), three = ask(3);
  ASSERT_EQ(three.at("choices").as_array().size(), 3u);
  EXPECT_EQ(one.at("choices").at(0).at("text"), three.at("choices").at(0).at("text"));
  EXPECT_NE(three.at("choices").at(1).at("text"), three.at("choices").at(2).at("text"));
  EXPECT_EQ(three.at("usage").at("prompt_tokens").as_int64(), 2);
  EXPECT_EQ(three.at("usage").at("completion_tokens").as_int64(), 60);
}

TEST_F(Serve, SeveralPromptsGiveAChoiceEach) {
  const json::value v =
      client_.post("/v1/completions", R"({"prompt": [[3, 4], [5], [3, 4]], "temperature": 0, "max_tokens": 8, "ignore_eos": true})").json();
  ASSERT_EQ(v.at("choices").as_array().size(), 3u);
  EXPECT_EQ(v.at("choices").at(0).at("text"), v.at("choices").at(2).at("text"));
  EXPECT_EQ(v.at("usage").at("prompt_tokens").as_int64(), 5);
}

TEST_F(Serve, EchoPutsThePromptInFront) {
  const json::value ids = client_.post("/tokenize", R"({"prompt": "Hello"})").json().at("tokens");
  const std::string body = greedy("1", 4).replace(0, 14, R"({"prompt": "Hello")");
  const json::value plain = client_.post("/v1/completions", body).json();
  const json::value echo = client_.post("/v1/completions", body.substr(0, body.size() - 1) + R"(, "echo": true})").json();
  EXPECT_EQ("Hello" + std::string(plain.at("choices").at(0).at("text").as_string()), echo.at("choices").at(0).at("text").as_string());
  EXPECT_EQ(plain.at("usage").at("prompt_tokens").as_int64(), static_cast<std::int64_t>(ids.as_array().size()));
}

TEST_F(Serve, CompletionLogprobsHaveAListForEachThing) {
  const json::value v = client_.post("/v1/completions", greedy("7, 8", 6, R"(, "logprobs": 3)")).json();
  const json::value& l = v.at("choices").at(0).at("logprobs");
  ASSERT_EQ(l.at("tokens").as_array().size(), 6u);
  std::string text;
  for (std::size_t i = 0; i < 6; ++i) {
    const double chosen = l.at("token_logprobs").at(i).as_double();
    EXPECT_LE(chosen, 0);
    const json::object& top = l.at("top_logprobs").at(i).as_object();
    EXPECT_EQ(top.at(l.at("tokens").at(i).as_string()).as_double(), chosen);
    for (const auto& [token, logprob] : top) EXPECT_LE(logprob.as_double(), chosen) << "greedy takes the best: " << token;
  }
  EXPECT_EQ(l.at("text_offset").at(0).as_int64(), 0);
}

TEST_F(Serve, RefusesWhatItCannotDoAndNamesTheField) {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {R"({"prompt": "x", "temprature": 0})", "temprature"},
      {R"({"prompt": "x", "max_tokens": "a"})", "max_tokens"},
      {R"({"max_tokens": 3})", "prompt"},
      {R"({"prompt": []})", "prompt"},
      {R"({"prompt": "x", "n": 0})", "n"},
      {R"({"prompt": "x", "suffix": "y"})", "suffix"},
      {R"({"prompt": "x", "n": 129})", "n"},
      {R"({"prompt": "x", "stream_options": {"include_usage": true}})", "stream_options"},
      {R"({"prompt": "x", "logit_bias": {"a": 1}})", "logit_bias"},
      {R"({"prompt": "x", "logprobs": true})", "logprobs"},
  };
  for (const auto& [body, field] : bad) {
    const Response r = client_.post("/v1/completions", body);
    EXPECT_EQ(r.status, 400) << body;
    EXPECT_EQ(r.json().at("error").at("param").as_string(), field) << body;
    EXPECT_EQ(r.json().at("error").at("type").as_string(), "invalid_request_error");
  }
  for (const char* body : {R"({"prompt": "x", "temperature": -1})", R"({"prompt": "x", "logprobs": 99})", R"({"prompt": [99999999]})",
                           R"({"prompt": [1], "max_tokens": 0})"}) {
    EXPECT_EQ(client_.post("/v1/completions", body).status, 400) << body;
  }
  EXPECT_EQ(client_.post("/v1/completions", R"({"model": "other", "prompt": "x"})").error(), "model_not_found");
  EXPECT_EQ(client_.get("/v1/nothing").status, 404);
  const Response wrong_method = client_.get("/v1/completions");
  EXPECT_EQ(wrong_method.status, 405);
  EXPECT_EQ(wrong_method.allow, "POST");
  client_.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}");
  EXPECT_EQ(client_.response().status, 415);
}

TEST_F(Serve, TokenizesBothWays) {
  const json::value ids = client_.post("/tokenize", R"({"prompt": "Hello, wörld", "add_special_tokens": false})").json();
  EXPECT_EQ(ids.at("count").as_int64(), static_cast<std::int64_t>(ids.at("tokens").as_array().size()));
  const std::string back = json::serialize(json::object{{"tokens", ids.at("tokens")}});
  EXPECT_EQ(client_.post("/detokenize", back).json().at("prompt").as_string(), "Hello, wörld");
  EXPECT_EQ(client_.post("/detokenize", R"({"tokens": [99999999]})").status, 400);
  EXPECT_EQ(client_.post("/tokenize", R"({"prompt": "a", "messages": []})").status, 400);
}

TEST_F(Serve, AdaptersAreModelsFromLoadToUnload) {
  const auto post = [&](const char* path, const std::string& body) { return client_.post(path, body); };
  const std::string ask = greedy("5, 17, 9", 24, R"(, "model": "ad")");
  EXPECT_EQ(post("/v1/completions", ask).error(), "model_not_found");
  const Response loaded = post("/v1/load_lora_adapter", R"({"lora_name": "ad", "lora_path": "tests/golden/tiny-llama/adapters/all-r4"})");
  ASSERT_EQ(loaded.status, 200) << loaded.body;
  const json::value list = client_.get("/v1/models").json();
  ASSERT_EQ(list.at("data").as_array().size(), 2u);
  EXPECT_EQ(list.at("data").at(1).at("parent").as_string(), "m");
  const json::value with = post("/v1/completions", ask).json(), without = post("/v1/completions", greedy("5, 17, 9", 24)).json();
  EXPECT_EQ(with.at("model").as_string(), "ad");
  EXPECT_NE(with.at("choices").at(0).at("text"), without.at("choices").at(0).at("text"));
  EXPECT_EQ(post("/v1/unload_lora_adapter", R"({"lora_name": "ad"})").status, 200);
  EXPECT_EQ(post("/v1/completions", ask).error(), "model_not_found");
  EXPECT_EQ(post("/v1/unload_lora_adapter", R"({"lora_name": "ad"})").status, 404);
  EXPECT_EQ(post("/v1/load_lora_adapter", R"({"lora_name": "x", "lora_path": "/nonexistent"})").status, 400);
  EXPECT_EQ(post("/v1/load_lora_adapter", R"({"lora_name": "m", "lora_path": "/nonexistent"})").status, 400);
  EXPECT_EQ(post("/v1/load_lora_adapter", R"({"lora_path": "/nonexistent"})").status, 400);
}

TEST_F(Serve, MetricsAddUpToWhatClientsSaw) {
  const double tokens = rig().metric("vllm:generation_tokens_total{"), prompts = rig().metric("vllm:prompt_tokens_total{");
  const double lengths = rig().metric("vllm:request_success_total{model_name=\"m\",finished_reason=\"length\"}");
  const double firsts = rig().metric("vllm:time_to_first_token_seconds_count{");
  std::int64_t seen_tokens = 0, seen_prompts = 0, requests = 0;
  for (int i = 1; i <= 12; ++i) {
    const Response r = client_.post("/v1/completions", greedy("1, 2, 3", i, fmt::format(R"(, "n": {})", 1 + i % 3)));
    const json::value usage = r.json().at("usage");
    seen_tokens += usage.at("completion_tokens").as_int64();
    seen_prompts += 3 * (1 + i % 3);
    requests += 1 + i % 3;
  }
  EXPECT_EQ(rig().metric("vllm:generation_tokens_total{") - tokens, static_cast<double>(seen_tokens));
  EXPECT_EQ(rig().metric("vllm:prompt_tokens_total{") - prompts, static_cast<double>(seen_prompts));
  EXPECT_EQ(rig().metric("vllm:request_success_total{model_name=\"m\",finished_reason=\"length\"}") - lengths,
            static_cast<double>(requests));
  EXPECT_EQ(rig().metric("vllm:time_to_first_token_seconds_count{") - firsts, static_cast<double>(requests));
}

TEST_F(Serve, AnswersWhatIsSentAheadInOrder) {
  std::string all;
  for (int i = 1; i <= 20; ++i) {
    all += Client::post_text("/v1/completions",
                             greedy("1, 2", i, i % 2 == 0 ? R"(, "stream": true, "stream_options": {"include_usage": true})" : ""));
    all += "GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n";
  }
  ASSERT_TRUE(client_.send(all));
  for (int i = 1; i <= 20; ++i) {
    const Response r = client_.response();
    const json::value usage = i % 2 == 0 ? events_of(r.body).back().at("usage") : r.json().at("usage");
    EXPECT_EQ(usage.at("completion_tokens").as_int64(), i);
    EXPECT_EQ(client_.response().json().at("object").as_string(), "list");
  }
}

TEST_F(Serve, SpeaksOldAndOddHttp) {
  const std::string body = greedy("1, 2", 3);
  Client old = rig().client();
  old.send(
      fmt::format("POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{}", body.size(), body));
  EXPECT_EQ(old.response().connection, "close");
  EXPECT_FALSE(old.receive());
  Client streamed = rig().client();
  const std::string stream = greedy("1, 2", 3, R"(, "stream": true)");
  streamed.send(fmt::format("POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{}",
                            stream.size(), stream));
  const std::string answer = streamed.receive_all();
  EXPECT_EQ(answer.find("chunked"), answer.npos);
  EXPECT_FALSE(text_of(events_of(answer.substr(answer.find("\r\n\r\n") + 4))).empty());
  // In chunks, byte by byte, behind Expect.
  client_.send(
      "POST http://x/v1/completions?q=1 HTTP/1.1\r\nHost: x\r\nContent-Type: Application/JSON; charset=utf-8\r\nExpect: 100-continue\r\n"
      "Transfer-Encoding: chunked\r\n\r\n");
  ASSERT_TRUE(client_.receive_until("100 Continue\r\n\r\n"));
  for (const char c : fmt::format("{:x}\r\n{}\r\n0\r\n\r\n", body.size(), body)) client_.send(std::string_view(&c, 1));
  EXPECT_EQ(client_.response().status, 200);
  // The last chunk, and its trailer, in pieces of any size.
  for (std::size_t piece = 1; piece <= 8; ++piece) {
    Client pieces = rig().client();
    const std::string last = "0\r\nTrailer: y\r\n\r\n";
    pieces.send(
        fmt::format("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nExpect: 100-continue\r\n"
                    "Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{}\r\n",
                    body.size(), body));
    for (std::size_t at = 0; at < last.size(); at += piece) pieces.send(last.substr(at, piece));
    EXPECT_EQ(pieces.response().status, 200) << piece;
    Client empty = rig().client();
    empty.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" +
               last.substr(0, piece));
    empty.send(last.substr(piece));
    EXPECT_EQ(empty.response().status, 400) << piece;
  }
  client_.send("HEAD /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  const std::string head = client_.receive_all();
  EXPECT_TRUE(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n")) << head;
  // A client that has sent all it wants still gets a short answer.
  Client half = rig().client();
  half.send("GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n");
  half.half_close();
  EXPECT_EQ(half.response().status, 200);
}

// Each is refused with the right status, and the server goes on.
TEST_F(Serve, MalformedHttpIsRefused) {
  const std::vector<std::pair<std::string, int>> corpus = {
      {"\x16\x03\x01\x02", 400},
      {"GET\r\n\r\n", 400},
      {"G\x01T / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"GET / HTTP/2.0\r\nHost: x\r\n\r\n", 505},
      {"GET / HTTX/1.1\r\nHost: x\r\n\r\n", 505},
      {"GET / HTTP/1.1\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost x\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: x\r\n Bad: y\r\n\r\n", 404},
      {"GET / HTTP/1.1\r\nHost: x\r\nA: \x01\r\n\r\n", 400},
      {"GET /\x7f HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400},
      {"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400},
      {"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n", 400},
      {"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
      {"POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501},
      {"POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\nContent-Length: 1\r\n\r\na", 501},
      {"GET /v1/models/%ff%00\" HTTP/1.1\r\nHost: x\r\n\r\n", 404},
      {"GET /%c3%28 HTTP/1.1\r\nHost: x\r\n\r\n", 404},
      {"POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", 400},
      {"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 5000000\r\n\r\n", 413},
      {"GET / HTTP/1.1\r\nHost: x\r\nA: " + std::string(20000, 'a') + "\r\n\r\n", 431},
      {"GET /" + std::string(20000, 'a') + " HTTP/1.1\r\n", 431},
  };
  for (const auto& [text, status] : corpus) {
    Client c = rig().client();
    c.send(text);
    c.half_close();
    const Response r = c.response();
    EXPECT_TRUE(r.status == status || r.status == 0) << r.status << " for " << text.substr(0, 60);
    if (r.status != 0) {
      EXPECT_FALSE(r.error().empty()) << "a body that is JSON";
    } else {
      // Nothing a server could tell from a request that is still on its way.
      EXPECT_EQ(text.find("\r\n\r\n"), text.npos) << text.substr(0, 60);
    }
  }
  EXPECT_EQ(client_.get("/health").status, 200);
}

TEST_F(Serve, MalformedJsonIsRefused) {
  const std::string deep = R"({"prompt": )" + std::string(5000, '[');
  for (const std::string& body :
       {std::string(), std::string("{"), std::string("[]"), std::string("null"), std::string(R"({"prompt": "a"} x)"),
        std::string("{\"prompt\": \"\xff\"}"), std::string(R"({"prompt": "\ud800"})"), deep, std::string("\0{}", 3),
        std::string(R"({"prompt": 1e999})"), std::string(R"({"prompt": {"a": 1}})"), std::string(R"({"prompt": [1.5]})"),
        std::string(R"({"prompt": [-1]})"), std::string(R"({"prompt": [[["a"]]]})")}) {
    for (const char* path : {"/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"}) {
      const Response r = client_.post(path, body);
      EXPECT_EQ(r.status, 400) << path << ' ' << body.substr(0, 60);
      EXPECT_FALSE(r.json().at("error").at("message").as_string().empty());
    }
  }
}

}  // namespace
}  // namespace troupe::serve
