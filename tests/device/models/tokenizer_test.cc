#include "device/models/tokenizer.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "tests/device/models/gguf_builder.h"
#include "tests/device/models/tokenizer_golden.h"

namespace troupe::device {
namespace {

using Ids = std::vector<Token>;

Tokenizer open_tokenizer(const std::string& path) {
  auto file = GgufFile::open(path);
  EXPECT_TRUE(file) << file.error().what;
  auto t = Tokenizer::from_gguf(file.value());
  EXPECT_TRUE(t) << t.error().what;
  return std::move(t).value();
}

void expect_golden(const Tokenizer& t, const TokenizerGolden& golden) {
  for (const auto& c : golden.texts) {
    auto ids = t.encode(c.text, true);
    ASSERT_TRUE(ids) << ids.error().what;
    EXPECT_EQ(ids.value(), c.ids) << "text: " << c.text;
    EXPECT_EQ(t.decode(c.ids), c.decoded);
  }
  for (const auto& c : golden.chats) {
    EXPECT_EQ(t.encode(c.rendered, true).value(), c.ids) << c.rendered;
    EXPECT_EQ(t.decode(c.ids), c.rendered);
  }
}

const char* const kTiny = "tests/golden/tiny-llama/tiny-llama.Q8_0.gguf";

TEST(Tokenizer, TinyLlamaGolden) {
  const auto golden = read_tokenizer_golden("tiny-llama");
  ASSERT_EQ(golden.texts.size(), 59u);
  ASSERT_EQ(golden.chats.size(), 1u);
  expect_golden(open_tokenizer(kTiny), golden);
}

TEST(Tokenizer, DefaultModelGolden) {
  const std::string path = default_model_path();
  if (path.empty()) GTEST_SKIP() << kNoDefaultModel;
  const auto golden = read_tokenizer_golden("smollm2");
  ASSERT_EQ(golden.texts.size(), 68u);
  ASSERT_EQ(golden.chats.size(), 5u);
  const Tokenizer t = open_tokenizer(path);
  expect_golden(t, golden);
  EXPECT_EQ(t.vocab_size(), 49152u);
  EXPECT_EQ(t.eos_ids(), Ids{2});
  EXPECT_EQ(t.bos_ids(), Ids{});
}

TEST(Tokenizer, ControlTokensAreTextUnlessAsked) {
  const Tokenizer t = open_tokenizer(kTiny);
  const std::string text = "a<|im_end|>b";
  const Ids as_special = t.encode(text, true).value();
  const Ids as_text = t.encode(text, false).value();
  EXPECT_EQ(std::count(as_special.begin(), as_special.end(), 2u), 1);
  EXPECT_EQ(std::count(as_text.begin(), as_text.end(), 2u), 0);
  EXPECT_EQ(t.decode(as_special), text);
  EXPECT_EQ(t.decode(as_text), text);
}

TEST(Tokenizer, InvalidUtf8NamesTheByte) {
  const Tokenizer t = open_tokenizer(kTiny);
  const auto r = t.encode("ab\xc3\xa9\xff", true);
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().code, ErrorCode::bad_request);
  EXPECT_EQ(r.error().what, "the text is not UTF-8: byte 4 (0xff) begins no character");
}

TEST(Tokenizer, TableHasBytesOfEveryIdAndNoTextOfControlTokens) {
  const Tokenizer t = open_tokenizer(kTiny);
  const auto table = t.table();
  ASSERT_EQ(table->offsets.size(), 513u);
  EXPECT_EQ(table->text(2), "");
  EXPECT_EQ(table->special[2], 1);
  EXPECT_EQ(table->text(511), "");  // unused
  const Ids ids = t.encode(" the \xc3\xa9", true).value();
  std::string text;
  for (Token id : ids) text += table->text(id);
  EXPECT_EQ(text, " the \xc3\xa9");
  EXPECT_EQ(t.decode(std::vector<Token>{512, 2}), "\xef\xbf\xbd<|im_end|>");
}

// Quadratic work would take hours here.
TEST(Tokenizer, LongTextsRoundTrip) {
  const Tokenizer t = open_tokenizer(kTiny);
  for (std::string unit : {"a", " ", "0", "the ", "<", "<|im_end|>"}) {
    std::string text;
    while (text.size() < (1u << 20)) text += unit;
    const auto ids = t.encode(text, true);
    ASSERT_TRUE(ids) << ids.error().what;
    EXPECT_EQ(t.decode(ids.value()), text) << unit;
  }
}

// A vocabulary of a, b, ab, an end token and a user-defined one.
struct Spec {
  std::string model = "gpt2";
  std::string pre = "gpt-2";
  std::vector<std::string> tokens{"a", "b", "ab", "<end>", "<u>", "\xc4\xa0"};
  std::vector<std::int32_t> types{1, 1, 1, 3, 4, 1};
  std::vector<std::string> merges{"a b"};
  std::uint32_t eos = 3;
};

Result<Tokenizer> build(const std::function<void(Spec&)>& change) {
  Spec s;
  change(s);
  GgufBuilder b;
  b.string("tokenizer.ggml.model", s.model).string("tokenizer.ggml.pre", s.pre).strings("tokenizer.ggml.tokens", s.tokens);
  b.array("tokenizer.ggml.token_type", kI32, s.types).strings("tokenizer.ggml.merges", s.merges);
  b.key<std::uint32_t>("tokenizer.ggml.eos_token_id", kU32, s.eos).key<std::uint8_t>("tokenizer.ggml.add_bos_token", kBool, 1);
  b.key<std::uint32_t>("tokenizer.ggml.bos_token_id", kU32, 4);
  const Bytes bytes = b.build(0);
  return Tokenizer::from_gguf(GgufFile::parse(bytes.span(), "t.gguf").value());
}

TEST(Tokenizer, FromItsParts) {
  auto r = build([](Spec&) {});
  ASSERT_TRUE(r) << r.error().what;
  const Tokenizer& t = r.value();
  EXPECT_EQ(t.encode("ab ba", true).value(), (Ids{2, 5, 1, 0}));
  EXPECT_EQ(t.encode("a<end><u>", true).value(), (Ids{0, 3, 4}));
  EXPECT_EQ(t.bos_ids(), Ids{4});
  const auto missing = t.encode("a<u>bx", true);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::bad_request);
  EXPECT_EQ(missing.error().what, "the vocabulary has no token for byte 5 (0x78) of the text");
}

TEST(Tokenizer, BadMetadataIsRefused) {
  auto refused = [](ErrorCode code, const char* part, const std::function<void(Spec&)>& change) {
    auto r = build(change);
    ASSERT_FALSE(r) << part;
    EXPECT_EQ(r.error().code, code) << r.error().what;
    EXPECT_EQ(r.error().what.find("t.gguf: "), 0u) << r.error().what;
    EXPECT_NE(r.error().what.find(part), std::string::npos) << r.error().what;
  };
  refused(ErrorCode::unsupported, "tokenizer 'llama'", [](Spec& s) { s.model = "llama"; });
  refused(ErrorCode::unsupported, "pre-tokenizer 'odd'", [](Spec& s) { s.pre = "odd"; });
  refused(ErrorCode::bad_file, "tokenizer.ggml.tokens", [](Spec& s) { s.tokens.clear(); });
  refused(ErrorCode::bad_file, "5 entries for a vocabulary of 6", [](Spec& s) { s.types.pop_back(); });
  refused(ErrorCode::bad_file, "entry 0: 7 is not", [](Spec& s) { s.types[0] = 7; });
  refused(ErrorCode::bad_file, "merges', entry 0", [](Spec& s) { s.merges[0] = "ab"; });
  refused(ErrorCode::bad_file, "merges', entry 0", [](Spec& s) { s.merges[0] = ""; });
  refused(ErrorCode::bad_file, "merges', entry 1", [](Spec& s) { s.merges.push_back("b a"); });
  refused(ErrorCode::bad_file, "entry 3: a special token that is not UTF-8", [](Spec& s) { s.tokens[3] = "<\xff>"; });
  refused(ErrorCode::bad_file, "eos_token_id': id 6", [](Spec& s) { s.eos = 6; });
}

TEST(Tokenizer, MissingMetadataIsNamed) {
  const Bytes bytes = GgufBuilder().string("tokenizer.ggml.model", "gpt2").build(0);
  auto r = Tokenizer::from_gguf(GgufFile::parse(bytes.span(), "t.gguf").value());
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().code, ErrorCode::not_found);
  EXPECT_NE(r.error().what.find("'tokenizer.ggml.tokens' is missing"), std::string::npos) << r.error().what;
}

}  // namespace
}  // namespace troupe::device
