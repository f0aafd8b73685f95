// What is read from a tokenizer.json and what is refused with which words; the models' own are in text_golden_test.
#include "device/models/tokenizer_json.h"

#include <gtest/gtest.h>
#include <boost/json.hpp>

#include <functional>

namespace troupe::device {
namespace {

namespace json = boost::json;
using Ids = std::vector<Token>;

json::object sound() {
  return json::parse(
             R"({"version":"1.0","added_tokens":[{"id":6,"content":"<end>","special":true},{"id":7,"content":"<u>","special":false}],
    "normalizer":null,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":true},"post_processor":null,
    "model":{"type":"BPE","dropout":null,"unk_token":null,"vocab":{"a":0,"b":1,"c":2,"ab":3,"abc":4,"\u0120":5},"merges":["a b"]}})")
      .as_object();
}

TokenizerFiles files(const json::object& tokenizer, const std::string& config = "", const std::string& chat = "") {
  return {"dir", json::serialize(tokenizer), config, chat, 0};
}
Result<Tokenizer> parse(const json::object& tokenizer, const std::string& config = "") {
  return tokenizer_from_json(files(tokenizer, config));
}

TEST(TokenizerJson, FromItsParts) {
  const auto t = parse(sound(), R"({"eos_token":"<end>","bos_token":{"content":"<u>"},"add_bos_token":true})");
  ASSERT_TRUE(t) << t.error().what;
  EXPECT_EQ(t.value().encode("abc ba", true).value(), (Ids{3, 2, 5, 1, 0}));
  EXPECT_EQ(t.value().encode("a<end><u>", true).value(), (Ids{0, 6, 7}));
  EXPECT_EQ(t.value().decode(Ids{4, 6}), "abc<end>");
  EXPECT_EQ(t.value().vocab_size(), 8u);
  EXPECT_EQ(t.value().eos_ids(), Ids{6});
  EXPECT_EQ(t.value().bos_ids(), Ids{7});
  EXPECT_EQ(t.value().table()->special[6], 1);
  EXPECT_EQ(t.value().table()->special[7], 0);
}

TEST(TokenizerJson, WholeWordsAreTheirTokens) {
  json::object o = sound();
  o["model"].as_object()["ignore_merges"] = true;
  EXPECT_EQ(parse(o).value().encode("abc ab abca", true).value(), (Ids{4, 5, 3, 5, 3, 2, 0}));
}

TEST(TokenizerJson, MergesAsPairs) {
  json::object o = sound();
  o["model"].as_object()["merges"] = json::parse(R"([["a","b"],["ab","c"]])");
  EXPECT_EQ(parse(o).value().encode("abc", true).value(), Ids{4});
}

TEST(TokenizerJson, NfcComposesTextButNotSpecialTokens) {
  json::object o = sound();
  o["normalizer"] = {{"type", "NFC"}};
  o["model"].as_object()["vocab"].as_object()["\xc3\x83"] = 8;  // byte 0xc3
  o["model"].as_object()["vocab"].as_object()["\xc2\xa9"] = 9;  // byte 0xa9
  o["model"].as_object()["vocab"].as_object()["e"] = 10;
  EXPECT_EQ(parse(o)
                .value()
                .encode("ae\xcc\x81"
                        "b<u>",
                        true)
                .value(),
            (Ids{0, 8, 9, 1, 7}));
  const auto missing = parse(o).value().encode("ae\xcc\x81<u>x", true);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().what, "the vocabulary has no token for byte 7 (0x78) of the text");
  // A mark that would compose with the token's last character stays outside of it.
  EXPECT_FALSE(parse(o).value().encode("<u>\xcc\xb8", true));
  std::string marks = "a";
  for (int i = 0; i < 300000; ++i) marks += "\xcc\x80\xcc\x96";
  const auto many = parse(o).value().encode(marks, true);
  ASSERT_FALSE(many);
  EXPECT_EQ(many.error().code, ErrorCode::bad_request);
  EXPECT_NE(many.error().what.find("4096 combining marks"), std::string::npos) << many.error().what;
}

TEST(TokenizerJson, TheModelsVocabularyMayBeLarger) {
  TokenizerFiles f = files(sound());
  f.vocab = 20;
  const auto t = tokenizer_from_json(f);
  ASSERT_TRUE(t) << t.error().what;
  EXPECT_EQ(t.value().vocab_size(), 20u);
  EXPECT_EQ(t.value().table()->special[19], 1);
  f.vocab = 1u << 20;
  EXPECT_EQ(tokenizer_from_json(f).error().code, ErrorCode::bad_file);
}

TEST(TokenizerJson, ThePostProcessorSaysWhatStandsInFront) {
  json::object o = sound();
  o["post_processor"] = json::parse(R"({"type":"Sequence","processors":[{"type":"ByteLevel"},
    {"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<end>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}]}]})");
  EXPECT_EQ(parse(o).value().bos_ids(), Ids{6});
  EXPECT_EQ(parse(o, R"({"bos_token":"<u>","add_bos_token":false})").value().bos_ids(), Ids{});
}

struct Bad {
  const char* name;
  std::function<void(json::object&)> bend;
  ErrorCode code;
  std::vector<const char*> words;
};
class TokenizerJsonBad : public testing::TestWithParam<Bad> {};

TEST_P(TokenizerJsonBad, IsRefusedWithItsFieldAndTheExpectation) {
  json::object o = sound();
  GetParam().bend(o);
  const auto t = parse(o);
  ASSERT_FALSE(t);
  EXPECT_EQ(t.error().code, GetParam().code) << t.error().what;
  EXPECT_EQ(t.error().what.find("dir/tokenizer.json: "), 0u) << t.error().what;
  for (const char* w : GetParam().words) EXPECT_NE(t.error().what.find(w), std::string::npos) << "\"" << w << "\" in: " << t.error().what;
}

json::object& model(json::object& o) { return o["model"].as_object(); }
const Bad kBad[] = {
    {"no_model", [](json::object& o) { o.erase("model"); }, ErrorCode::not_found, {"'model' is missing"}},
    {"unigram", [](json::object& o) { model(o)["type"] = "Unigram"; }, ErrorCode::unsupported, {"Unigram", "byte-level BPE"}},
    {"sentencepiece", [](json::object& o) { model(o)["byte_fallback"] = true; }, ErrorCode::unsupported, {"byte_fallback"}},
    {"suffix", [](json::object& o) { model(o)["end_of_word_suffix"] = "</w>"; }, ErrorCode::unsupported, {"end_of_word_suffix"}},
    {"no_vocab", [](json::object& o) { model(o).erase("vocab"); }, ErrorCode::not_found, {"'vocab' is missing"}},
    {"far_id",
     [](json::object& o) { model(o)["vocab"].as_object()["z"] = 4000000000u; },
     ErrorCode::bad_file,
     {"'vocab'", "'z' is 4000000000", "an id below"}},
    {"negative_id", [](json::object& o) { model(o)["vocab"].as_object()["z"] = -1; }, ErrorCode::bad_file, {"'z' is -1"}},
    {"text_id", [](json::object& o) { model(o)["vocab"].as_object()["z"] = "1"; }, ErrorCode::bad_file, {"'z' is \"1\""}},
    {"same_id", [](json::object& o) { model(o)["vocab"].as_object()["z"] = 1; }, ErrorCode::bad_file, {"'z' is 1", "no other token"}},
    {"no_merges", [](json::object& o) { model(o).erase("merges"); }, ErrorCode::not_found, {"'merges' is missing"}},
    {"merge_word",
     [](json::object& o) { model(o)["merges"] = {"ab"}; },
     ErrorCode::bad_file,
     {"'merges', entry 0", "\"ab\"", "left right"}},
    {"merge_of_three", [](json::object& o) { model(o)["merges"] = json::parse(R"([["a","b","c"]])"); }, ErrorCode::bad_file, {"entry 0"}},
    {"merge_unknown",
     [](json::object& o) {
       model(o)["merges"] = {"a b", "b c"};
     },
     ErrorCode::bad_file,
     {"'merges', entry 1", "not in the vocabulary"}},
    {"normalizer",
     [](json::object& o) {
       o["normalizer"] = {{"type", "Lowercase"}};
     },
     ErrorCode::unsupported,
     {"'normalizer'", "Lowercase", "NFC"}},
    {"no_split", [](json::object& o) { o["pre_tokenizer"] = nullptr; }, ErrorCode::not_found, {"'pre_tokenizer' is missing"}},
    {"metaspace",
     [](json::object& o) {
       o["pre_tokenizer"] = {{"type", "Metaspace"}};
     },
     ErrorCode::unsupported,
     {"Metaspace"}},
    {"prefix_space",
     [](json::object& o) { o["pre_tokenizer"].as_object()["add_prefix_space"] = true; },
     ErrorCode::unsupported,
     {"add_prefix_space"}},
    {"regex",
     [](json::object& o) {
       o["pre_tokenizer"] =
           json::parse(R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"[a-z]+"},"behavior":"Isolated"},
         {"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]})");
     },
     ErrorCode::unsupported,
     {"'Regex'", "[a-z]+"}},
    {"added_no_array", [](json::object& o) { o["added_tokens"] = 3; }, ErrorCode::bad_file, {"'added_tokens' is 3"}},
    {"added_far",
     [](json::object& o) { o["added_tokens"].as_array()[0].as_object()["id"] = 4000000000u; },
     ErrorCode::bad_file,
     {"entry 0", "'id' is 4000000000"}},
    {"added_same",
     [](json::object& o) { o["added_tokens"].as_array()[0].as_object()["id"] = 1; },
     ErrorCode::bad_file,
     {"entry 0", "'id' is 1"}},
    {"added_empty",
     [](json::object& o) { o["added_tokens"].as_array()[0].as_object()["content"] = ""; },
     ErrorCode::bad_file,
     {"'content' is \"\""}},
    {"added_lstrip",
     [](json::object& o) { o["added_tokens"].as_array()[0].as_object()["lstrip"] = true; },
     ErrorCode::unsupported,
     {"entry 0", "'lstrip'"}},
};
INSTANTIATE_TEST_SUITE_P(All, TokenizerJsonBad, testing::ValuesIn(kBad), [](const auto& info) { return std::string(info.param.name); });

TEST(TokenizerJson, ConfigIsChecked) {
  const auto expect = [](const char* config, const char* words) {
    const auto t = parse(sound(), config);
    ASSERT_FALSE(t) << config;
    EXPECT_NE(t.error().what.find(words), std::string::npos) << t.error().what;
  };
  expect("{", "dir/tokenizer_config.json: byte 1: JSON is expected");
  expect("[]", "dir/tokenizer_config.json: an object is expected");
  expect(R"({"eos_token":"<none>"})", "field 'eos_token': the token '<none>' is not in the vocabulary");
  expect(R"({"add_bos_token":true})", "'bos_token' is missing");
  expect(R"({"add_bos_token":1})", "'add_bos_token' is 1");
  expect(R"({"eos_token":{"text":"x"}})", "'content' is missing");
}

TEST(TokenizerJson, ChatTemplates) {
  const std::string loop = "{% for m in messages %}{{ m.role + m.content + eos_token }}{% endfor %}";
  const std::vector<ChatMessage> chat{{"user", "hi"}};
  const auto render = [&](const TokenizerFiles& f) { return chat_template_from_json(f).value().render(chat).value(); };
  json::object config{{"eos_token", "<end>"}, {"chat_template", loop}};
  EXPECT_EQ(render(files(sound(), json::serialize(config))), "userhi<end>");
  config["chat_template"] = {{{"name", "tool_use"}, {"template", "x"}}, {{"name", "default"}, {"template", loop}}};
  EXPECT_EQ(render(files(sound(), json::serialize(config))), "userhi<end>");
  // The file of its own counts before the field.
  EXPECT_EQ(render(files(sound(), json::serialize(config), "{% for m in messages %}{{ m.content + m.role }}{% endfor %}")), "hiuser");
  EXPECT_EQ(chat_template_from_json(files(sound())).error().code, ErrorCode::not_found);
  const auto other = chat_template_from_json(files(sound(), "", "{{ raise_exception('x') }}"));
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ErrorCode::unsupported);
  EXPECT_EQ(other.error().what.find("dir/chat_template.jinja: "), 0u);
  EXPECT_NE(other.error().what.find("{{ raise_exception('x') }}"), std::string::npos);
  config["chat_template"] = json::array{};
  EXPECT_NE(chat_template_from_json(files(sound(), json::serialize(config))).error().what.find("'chat_template' is []"), std::string::npos);
}

TEST(TokenizerJson, AFolderWithoutOneIsNoModel) {
  const auto f = read_tokenizer_files(testing::TempDir() + "none");
  ASSERT_FALSE(f);
  EXPECT_EQ(f.error().code, ErrorCode::not_found);
  EXPECT_NE(f.error().what.find("tokenizer.json"), std::string::npos);
}

}  // namespace
}  // namespace troupe::device
