#include "actors/scheduler/text_stream.h"

#include <gtest/gtest.h>

namespace troupe::actors {
namespace {

const std::vector<std::string> kNone;

TEST(TextStream, PassesTextThatNothingHoldsBack) {
  TextStream t;
  std::string out;
  EXPECT_FALSE(t.push("Hello", kNone, out));
  EXPECT_EQ(out, "Hello");
  EXPECT_FALSE(t.may_complete());
}

TEST(TextStream, HoldsBackTheBeginningOfAStopStringAndReleasesItWhenItIsNone) {
  TextStream t;
  std::string out;
  const std::vector<std::string> stops = {"</end>"};
  EXPECT_FALSE(t.push("a</", stops, out));
  EXPECT_EQ(out, "a");
  EXPECT_TRUE(t.may_complete());
  EXPECT_FALSE(t.push("b", stops, out));
  EXPECT_EQ(out, "a</b");
  EXPECT_FALSE(t.may_complete());
}

TEST(TextStream, EndsBeforeTheEarliestStopStringAcrossTokens) {
  TextStream t;
  std::string out;
  const std::vector<std::string> stops = {"xyz", "y"};
  EXPECT_FALSE(t.push("abx", stops, out));
  EXPECT_TRUE(t.push("yzq", stops, out)) << "xyz begins before y";
  EXPECT_EQ(out, "ab");
}

TEST(TextStream, AStopStringThatOverlapsItselfIsFound) {
  TextStream t;
  std::string out;
  const std::vector<std::string> stops = {"aab"};
  EXPECT_FALSE(t.push("aa", stops, out));
  EXPECT_FALSE(t.push("a", stops, out));
  EXPECT_EQ(out, "a");
  EXPECT_TRUE(t.push("b", stops, out));
  EXPECT_EQ(out, "a");
}

TEST(TextStream, HoldsBackHalfACharacterAndReplacesWhatIsNone) {
  TextStream t;
  std::string out;
  EXPECT_FALSE(t.push("\xE2\x82", kNone, out));
  EXPECT_EQ(out, "");
  EXPECT_FALSE(t.may_complete()) << "no stop string is at stake";
  EXPECT_FALSE(t.push("\xAC!", kNone, out));
  EXPECT_EQ(out, "\xE2\x82\xAC!");
  EXPECT_FALSE(t.push("\xFF\xF0\x9F", kNone, out));
  t.flush(out);
  EXPECT_EQ(out, "\xE2\x82\xAC!\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(TextStream, RefusesOverlongFormsAndSurrogates) {
  std::string out;
  append_utf8("\xC0\x80", true, out);
  EXPECT_EQ(out, "\xEF\xBF\xBD\xEF\xBF\xBD");
  out.clear();
  append_utf8("\xED\xA0\x80", true, out);
  EXPECT_EQ(out, "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
  out.clear();
  append_utf8("\xF4\x8F\xBF\xBF", true, out);
  EXPECT_EQ(out, "\xF4\x8F\xBF\xBF");
}

TEST(TextStream, FlushReleasesAHeldStopPrefix) {
  TextStream t;
  std::string out;
  EXPECT_FALSE(t.push("ab<", {"<stop>"}, out));
  t.flush(out);
  EXPECT_EQ(out, "ab<");
}

// However the bytes are cut into tokens, the text is the same.
TEST(TextStream, TheCutOfTheBytesDoesNotMatter) {
  const std::string text = "na\xC3\xAFve \xF0\x9F\x98\x80 ab<st\xE2\x82\xAC <stop> tail";
  const std::vector<std::string> stops = {"<stop>", "zzz"};
  for (std::size_t cut = 1; cut < 9; ++cut) {
    TextStream t;
    std::string out;
    bool stopped = false;
    for (std::size_t i = 0; i < text.size() && !stopped; i += cut) stopped = t.push(text.substr(i, cut), stops, out);
    EXPECT_TRUE(stopped);
    EXPECT_EQ(out, text.substr(0, text.find("<stop>"))) << "cut " << cut;
  }
}

}  // namespace
}  // namespace troupe::actors
