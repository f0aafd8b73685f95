#include "tools/troupe/compare.h"

#include <gtest/gtest.h>

#include <cmath>

namespace troupe::tools {
namespace {

RequestOutcome outcome(std::vector<Token> ids, std::string text, FinishReason finish = FinishReason::stop) {
  RequestOutcome o;
  o.id = "4";
  o.token_ids = std::move(ids);
  o.text = std::move(text);
  o.finish = finish;
  return o;
}

// -1: equal; else the output position of the first difference. The order of the two must not matter.
int diff(const RequestOutcome& a, const RequestOutcome& b) {
  const auto one = first_divergence({outcome({}, ""), a}, {outcome({}, ""), b});
  const auto other = first_divergence({outcome({}, ""), b}, {outcome({}, ""), a});
  EXPECT_EQ(one.has_value(), other.has_value());
  if (!one || !other) return -1;
  EXPECT_EQ(one->token, other->token);
  return static_cast<int>(one->token);
}

TEST(Compare, EqualStreamsAreEqual) { EXPECT_EQ(diff(outcome({1, 2}, "ab"), outcome({1, 2}, "ab")), -1); }

TEST(Compare, NamesTheFirstTokenThatDiffers) {
  EXPECT_EQ(diff(outcome({1, 2, 3}, "abc"), outcome({1, 9, 3}, "axc")), 1);
  EXPECT_EQ(first_divergence({outcome({1}, "a")}, {outcome({2}, "b")})->id, "4");
}

TEST(Compare, AnExtraTokenDiffersAtTheEnd) { EXPECT_EQ(diff(outcome({1, 2}, "ab"), outcome({1, 2, 3}, "ab")), 2); }

TEST(Compare, TextAndReasonCount) {
  EXPECT_EQ(diff(outcome({1, 2}, "ab"), outcome({1, 2}, "a")), 2);
  EXPECT_EQ(diff(outcome({1, 2}, "ab"), outcome({1, 2}, "ab", FinishReason::length)), 2);
}

TEST(Compare, LogprobsCountBitByBit) {
  RequestOutcome a = outcome({1}, "a"), b = a;
  a.logprobs = {{-1.0f, {{1, -1.0f}}}};
  b.logprobs = a.logprobs;
  EXPECT_EQ(diff(a, b), -1);
  b.logprobs[0].best[0].logprob = std::nextafter(-1.0f, 0.0f);
  EXPECT_EQ(diff(a, b), 0);
}

TEST(Compare, ACancelledOrLateStreamComparesAsPrefix) {
  for (const FinishReason early : {FinishReason::cancelled, FinishReason::deadline}) {
    EXPECT_EQ(diff(outcome({1, 2, 3}, "abc"), outcome({1, 2}, "ab", early)), -1);
    EXPECT_EQ(diff(outcome({1, 2, 3}, "abc", early), outcome({1, 2}, "ab", early)), -1);
    EXPECT_EQ(diff(outcome({1, 2, 3}, "abc"), outcome({1, 9}, "ax", early)), 1);
    EXPECT_EQ(diff(outcome({1, 2, 3}, "abc"), outcome({1, 2}, "ax", early)), 2);
  }
}

TEST(Compare, AMissingRequestIsADifference) { EXPECT_TRUE(first_divergence({outcome({}, "")}, {}).has_value()); }

}  // namespace
}  // namespace troupe::tools
