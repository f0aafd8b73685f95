#include "tools/troupe/jsonl.h"

#include <gtest/gtest.h>

namespace troupe::tools {
namespace {

RequestLine good(std::string_view line) {
  auto parsed = parse_request_line(line, "f:3");
  if (auto* bad = std::get_if<LineError>(&parsed)) {
    ADD_FAILURE() << bad->error.what;
    return {};
  }
  return std::get<RequestLine>(std::move(parsed));
}

LineError bad(std::string_view line) {
  auto parsed = parse_request_line(line, "f:3");
  if (std::holds_alternative<RequestLine>(parsed)) {
    ADD_FAILURE() << "accepted: " << line;
    return {};
  }
  return std::get<LineError>(std::move(parsed));
}

TEST(Jsonl, DefaultsAreGreedySixteenTokens) {
  const RequestLine line = good(R"({"id": 7, "prompt": "hi"})");
  EXPECT_EQ(line.place, "f:3");
  EXPECT_EQ(line.id, "7");
  EXPECT_EQ(std::get<PromptText>(line.prompt), "hi");
  EXPECT_EQ(line.request.stop.max_tokens, 16u);
  EXPECT_EQ(line.request.sampling.temperature, 0);
  EXPECT_FALSE(line.request.sampling.needs_logits());
  EXPECT_FALSE(line.request.sampling.seed.has_value());
  EXPECT_FALSE(line.request.think.has_value());
  EXPECT_FALSE(line.cancel_ms || line.cancel_after_tokens || line.request.deadline);
}

TEST(Jsonl, ReadsEveryField) {
  const RequestLine line = good(R"({"id": "a", "prompt_ids": [1, 2], "max_tokens": 9, "min_tokens": 2, "temperature": 0.5, "top_k": 4,
      "top_p": 0.75, "min_p": 0.25, "repetition_penalty": 1.5, "presence_penalty": -1, "frequency_penalty": 2, "logit_bias": {"5": -1.5},
      "seed": 18446744073709551615, "stop": ["x", "y"], "stop_token_ids": [3], "ignore_eos": true, "logprobs": 2,
      "think": {"close": 8, "bar": [9, 10]}, "arrive_ms": 11, "cancel_ms": 12, "cancel_after_tokens": 13, "deadline_ms": 14})");
  EXPECT_EQ(line.id, "\"a\"");
  EXPECT_EQ(std::get<PromptIds>(line.prompt), (PromptIds{1, 2}));
  const SamplingParams& s = line.request.sampling;
  EXPECT_EQ(s.temperature, 0.5f);
  EXPECT_EQ(s.top_k, 4u);
  EXPECT_EQ(s.top_p, 0.75f);
  EXPECT_EQ(s.min_p, 0.25f);
  EXPECT_EQ(s.repetition_penalty, 1.5f);
  EXPECT_EQ(s.presence_penalty, -1);
  EXPECT_EQ(s.frequency_penalty, 2);
  ASSERT_EQ(s.logit_bias.size(), 1u);
  EXPECT_EQ(s.logit_bias[0].id, 5u);
  EXPECT_EQ(s.logit_bias[0].bias, -1.5f);
  EXPECT_EQ(*s.seed, 18446744073709551615u);
  EXPECT_EQ(*s.logprobs, 2u);
  const StopConditions& stop = line.request.stop;
  EXPECT_EQ(stop.max_tokens, 9u);
  EXPECT_EQ(stop.min_tokens, 2u);
  EXPECT_EQ(stop.stop, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(stop.stop_token_ids, (std::vector<Token>{3}));
  EXPECT_TRUE(stop.ignore_eos);
  ASSERT_TRUE(line.request.think.has_value());
  EXPECT_EQ(line.request.think->close, 8u);
  EXPECT_EQ(line.request.think->bar_a, 9u);
  EXPECT_EQ(line.request.think->bar_b, 10u);
  EXPECT_EQ(line.arrive_ms, 11);
  EXPECT_EQ(line.cancel_ms, 12);
  EXPECT_EQ(line.cancel_after_tokens, 13u);
  EXPECT_EQ(*line.request.deadline, 14'000'000);
}

TEST(Jsonl, ReadsMessagesAndOneStop) {
  const RequestLine line =
      good(R"({"id": 1, "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "ü"}], "stop": "end"})");
  const auto& messages = std::get<PromptMessages>(line.prompt);
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_EQ(messages[0].role, "system");
  EXPECT_EQ(messages[1].content, "ü");
  EXPECT_EQ(line.request.stop.stop, (std::vector<std::string>{"end"}));
}

TEST(Jsonl, ANumberAndAStringAreTwoIds) { EXPECT_NE(good(R"({"id": 7, "prompt": "a"})").id, good(R"({"id": "7", "prompt": "a"})").id); }

struct BadLine {
  const char* line;
  const char* id;
  const char* message;  // a part of it
};

TEST(Jsonl, NamesTheLineAndTheFieldOfWhatIsWrong) {
  const BadLine lines[] = {
      {"", "null", "f:3: no JSON"},
      {"{", "null", "f:3: no JSON"},
      {"nonsense", "null", "f:3: no JSON"},
      {R"({"id": 1, "prompt": "a"} x)", "null", "f:3: no JSON"},
      {"{\"id\": 1, \"prompt\": \"\xff\"}", "null", "f:3: no JSON"},
      {"[1]", "null", "f:3: a request must be a JSON object, not an array"},
      {R"({"prompt": "a"})", "null", "field \"id\": is missing"},
      {R"({"id": 1.5, "prompt": "a"})", "null", "field \"id\": must be a string or an integer"},
      {R"({"id": 1})", "1", "exactly one of"},
      {R"({"id": 1, "prompt": "a", "prompt_ids": [1]})", "1", "has 2"},
      {R"({"id": 1, "prompt": "a", "temprature": 1})", "1", "f:3: field \"temprature\": unknown field"},
      {R"({"id": 1, "prompt": 5})", "1", "field \"prompt\": must be a string, not an integer"},
      {R"({"id": 1, "prompt_ids": [1, -2]})", "1", "field \"prompt_ids[1]\": must not be negative"},
      {R"({"id": 1, "prompt_ids": [4294967296]})", "1", "field \"prompt_ids[0]\": must be at most 4294967295"},
      {R"({"id": 1, "prompt": "a", "max_tokens": 1.5})", "1", "field \"max_tokens\": must be an integer"},
      {R"({"id": 1, "prompt": "a", "max_tokens": -1})", "1", "field \"max_tokens\": must not be negative"},
      {R"({"id": 1, "prompt": "a", "temperature": "hot"})", "1", "field \"temperature\": must be a number"},
      {R"({"id": 1, "prompt": "a", "ignore_eos": 1})", "1", "field \"ignore_eos\": must be true or false"},
      {R"({"id": 1, "prompt": "a", "stop": [1]})", "1", "field \"stop[0]\": must be a string"},
      {R"({"id": 1, "prompt": "a", "logit_bias": {"x": 1}})", "1", "field \"logit_bias.x\": the key must be a token id"},
      {R"({"id": 1, "prompt": "a", "think": {"close": 1}})", "1", "field \"think\": needs both"},
      {R"({"id": 1, "prompt": "a", "think": {"close": 1, "bar": [1]}})", "1", "field \"think.bar\": must be two ids"},
      {R"({"id": 1, "prompt": "a", "think": {"close": 1, "bar": [1, 2], "open": 3}})", "1", "field \"think.open\": unknown"},
      {R"({"id": 1, "messages": [{"content": "a"}]})", "1", "field \"messages[0]\": has no \"role\""},
      {R"({"id": 1, "messages": [{"role": "user", "content": "a", "name": "b"}]})", "1", "field \"messages[0].name\": unknown"},
      {R"({"id": 1, "prompt": "a", "arrive_ms": 99999999999})", "1", "field \"arrive_ms\": must be at most"},
  };
  for (const BadLine& line : lines) {
    const LineError error = bad(line.line);
    EXPECT_EQ(error.id, line.id) << line.line;
    EXPECT_EQ(error.error.code, ErrorCode::bad_request) << line.line;
    EXPECT_NE(error.error.what.find(line.message), std::string::npos) << line.line << "\n -> " << error.error.what;
    EXPECT_TRUE(error.error.what.starts_with("f:3: ")) << error.error.what;
  }
}

TEST(Jsonl, DeepNestingIsRefused) { bad(std::string(100'000, '[')); }

TEST(Jsonl, IdsComeAsArrayObjectOrList) {
  EXPECT_EQ(parse_ids("[1,2]", "stdin").value(), (std::vector<Token>{1, 2}));
  EXPECT_EQ(parse_ids("{\"ids\":[3]}\n", "stdin").value(), (std::vector<Token>{3}));
  EXPECT_FALSE(parse_ids("{\"ids\":[3],\"x\":1}", "stdin").has_value());
  EXPECT_FALSE(parse_ids("{\"ids\":3}", "stdin").has_value());
  EXPECT_FALSE(parse_ids("", "stdin").has_value());
  EXPECT_EQ(parse_id_list("1,22,3").value(), (std::vector<Token>{1, 22, 3}));
  for (const char* text : {"", ",", "1,", "1,,2", "1 2", "-1", "4294967296", "a"}) EXPECT_FALSE(parse_id_list(text).has_value()) << text;
}

TEST(Jsonl, LoraCommands) {
  EXPECT_EQ(good(R"({"id": 1, "prompt": "x", "adapter": "pirate"})").request.adapter, "pirate");
  EXPECT_FALSE(good(R"({"id": 1, "prompt": "x"})").lora);
  RequestLine line = good(R"({"lora": {"load": {"name": "pirate", "dir": "d"}}, "at_ms": 7})");
  ASSERT_TRUE(line.lora);
  EXPECT_EQ(line.id, "null");
  EXPECT_EQ(line.arrive_ms, 7);
  EXPECT_EQ(line.lora->kind, LoraCommand::Kind::promote_disk);
  EXPECT_EQ(line.lora->name, "pirate");
  EXPECT_EQ(line.lora->path, "d");
  line = good(R"({"lora": {"load": {"name": "a", "dir": "d", "slot": 2}, "max_wait_ms": 5, "preempt": true}, "id": "x"})");
  EXPECT_EQ(line.id, "\"x\"");
  EXPECT_EQ(line.lora->kind, LoraCommand::Kind::load_into_slot);
  EXPECT_EQ(line.lora->slot, 2u);
  EXPECT_EQ(line.lora->max_wait, 5'000'000);
  EXPECT_EQ(line.lora->at_bound, LoraCommand::AtBound::preempt);
  line = good(R"({"lora": {"promote": {"name": "a", "peer": "host:0", "adapter": "b"}, "replica": "host:1", "roll_back": true}})");
  EXPECT_EQ(line.lora->kind, LoraCommand::Kind::promote);
  EXPECT_EQ(line.lora->name + line.lora->peer + line.lora->adapter + line.lora->replica, "ahost:0bhost:1");
  EXPECT_TRUE(line.lora->roll_back);
  EXPECT_EQ(good(R"({"lora": {"unload": "a"}})").lora->kind, LoraCommand::Kind::unload);
  EXPECT_EQ(good(R"({"lora": {"rotate": ""}})").lora->kind, LoraCommand::Kind::rotate);
  EXPECT_EQ(good(R"({"lora": {"list": true}})").lora->kind, LoraCommand::Kind::list);
  for (const char* wrong :
       {R"({"lora": {}})", R"({"lora": 1})", R"({"lora": {"unload": 1}})", R"({"lora": {"list": true, "unload": "a"}})",
        R"({"lora": {"promote": "a"}})", R"({"lora": {"promote": {"from": "a"}}})", R"({"lora": {"list": true, "replica": 1}})",
        R"({"lora": {"load": {"name": "a", "where": "d"}}})", R"({"lora": {"list": true}, "prompt": "x"})",
        R"({"lora": {"list": true}, "at_ms": -1})", R"({"lora": {"shake": "a"}})", R"({"id": 1, "prompt": "x", "adapter": 2})"})
    EXPECT_EQ(bad(wrong).error.code, ErrorCode::bad_request) << wrong;
}

}  // namespace
}  // namespace troupe::tools
