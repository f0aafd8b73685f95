#include "device/models/special_tokens.h"

#include <gtest/gtest.h>

namespace troupe::device {
namespace {

using Kind = SpecialTokens::Kind;

SpecialTokens sample() {
  SpecialTokens s;
  s.add("<a>", 1, Kind::control);
  s.add("<a>b", 2, Kind::control);
  s.add("<user>", 3, Kind::user_defined);
  s.add("<a>", 9, Kind::control);
  return s;
}

void expect(std::string_view text, bool control_too, std::size_t from, std::optional<SpecialTokens::Found> want) {
  const SpecialTokens s = sample();
  const auto found = s.find(text, from, control_too);
  ASSERT_EQ(found.has_value(), want.has_value()) << text;
  if (!found) return;
  EXPECT_EQ(found->at, want->at) << text;
  EXPECT_EQ(found->size, want->size) << text;
  EXPECT_EQ(found->id, want->id) << text;
}

TEST(SpecialTokens, LeftmostThenLongestThenFirst) {
  expect("x<a>y", true, 0, {{1, 3, 1}});
  expect("x<a>b", true, 0, {{1, 4, 2}});
  expect("<<a><a>b", true, 0, {{1, 3, 1}});
  expect("<<a><a>b", true, 2, {{4, 4, 2}});
  expect("<a", true, 0, std::nullopt);
  expect("", true, 0, std::nullopt);
  expect("<user><a>", true, 0, {{0, 6, 3}});
}

TEST(SpecialTokens, ControlTokensOnlyWhereAsked) {
  expect("<a><user>", false, 0, {{3, 6, 3}});
  expect("<a>b", false, 0, std::nullopt);
}

TEST(SpecialTokens, NoneAdded) {
  SpecialTokens s;
  EXPECT_FALSE(s.find("anything", 0, true));
}

}  // namespace
}  // namespace troupe::device
