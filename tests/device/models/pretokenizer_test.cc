#include "device/models/pretokenizer.h"

#include <gtest/gtest.h>

namespace troupe::device {
namespace {

using Words = std::vector<std::string_view>;

Words split(std::string_view rule, std::string_view text) { return PreTokenizer::named(rule).value().split(text).value(); }

TEST(PreTokenizer, Gpt2) {
  EXPECT_EQ(split("gpt-2", ""), Words{});
  EXPECT_EQ(split("gpt-2", "Hello, world 123!"), (Words{"Hello", ",", " world", " 123", "!"}));
  EXPECT_EQ(split("gpt-2", "it's we'll I'VE"), (Words{"it", "'s", " we", "'ll", " I", "'", "VE"}));
  EXPECT_EQ(split("gpt-2", "a   b  "), (Words{"a", "  ", " b", "  "}));
  EXPECT_EQ(split("gpt-2", "a\n\n b"), (Words{"a", "\n\n", " b"}));
}

TEST(PreTokenizer, SmollmCutsEachDigitFirst) {
  EXPECT_EQ(split("smollm", "in 2024."), (Words{"in", " ", "2", "0", "2", "4", "."}));
  // The digit is cut off before the spaces are looked at, so they all stay together.
  EXPECT_EQ(split("smollm", "a   1"), (Words{"a", "   ", "1"}));
  EXPECT_EQ(split("gpt-2", "a   1"), (Words{"a", "  ", " 1"}));
}

TEST(PreTokenizer, Llama3AndQwen) {
  EXPECT_EQ(split("llama-bpe", "in 12345."), (Words{"in", " ", "123", "45", "."}));
  EXPECT_EQ(split("qwen2", "in 12345."), (Words{"in", " ", "1", "2", "3", "4", "5", "."}));
  for (const char* rule : {"llama-bpe", "qwen2"}) {
    EXPECT_EQ(split(rule, "it's WE'LL -dash\tTab"), (Words{"it", "'s", " WE", "'LL", " -", "dash", "\tTab"}));
    EXPECT_EQ(split(rule, "x;\r\n\r\n  y  "), (Words{"x", ";\r\n\r\n", " ", " y", "  "}));
    EXPECT_EQ(split(rule, "a \n \n b"), (Words{"a", " \n \n", " b"}));
  }
}

TEST(PreTokenizer, SpacesAreThoseOfUnicode) {
  // U+180E has not been a space since Unicode 6.3; U+3000, U+0085 and U+00A0 are.
  EXPECT_EQ(split("gpt-2", "\xe1\xa0\x8e!"), (Words{"\xe1\xa0\x8e!"}));
  EXPECT_EQ(split("gpt-2", "\xe3\x80\x80!"), (Words{"\xe3\x80\x80", "!"}));
  EXPECT_EQ(split("gpt-2", "\xc2\x85!"), (Words{"\xc2\x85", "!"}));
  EXPECT_EQ(split("gpt-2", "\xc2\xa0!"), (Words{"\xc2\xa0", "!"}));
}

TEST(PreTokenizer, LongRunsAreOneWord) {
  for (char c : {'x', ' ', '!', '\n'}) {
    const std::string text(1 << 20, c);
    for (const char* rule : {"smollm", "llama-bpe", "qwen2"}) EXPECT_EQ(split(rule, text), Words{text}) << rule << " of " << int{c};
  }
}

TEST(PreTokenizer, UnknownNamesAreRefused) {
  const auto r = PreTokenizer::named("no-such");
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().code, ErrorCode::unsupported);
  EXPECT_EQ(r.error().what, "pre-tokenizer 'no-such' is not known; known are 'gpt-2', 'smollm', 'llama-bpe', 'qwen2'");
}

}  // namespace
}  // namespace troupe::device
