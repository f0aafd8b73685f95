#include "device/models/scripted_oracle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace troupe::device {
namespace {

TEST(ScriptedOracle, EveryPartOfTheHistoryCounts) {
  for (const bool attention : {true, false}) {
    ScriptedOptions options{.vocab = 50000, .attention = attention};
    const std::vector<Token> base = {5, 6, 7, 8};
    std::set<Token> seen = {scripted_next(options, base)};
    seen.insert(scripted_next(options, std::vector<Token>{9, 6, 7, 8}));
    seen.insert(scripted_next(options, std::vector<Token>{6, 5, 7, 8}));
    seen.insert(scripted_next(options, std::vector<Token>{5, 6, 7}));
    seen.insert(scripted_next(options, std::vector<Token>{6, 7, 8}));
    seen.insert(scripted_next(options, base, {}, 1));
    options.seed = 2;
    seen.insert(scripted_next(options, base));
    EXPECT_EQ(seen.size(), 7u);
  }
}

// By the definition, in one sum; a window that holds everything is none.
TEST(ScriptedOracle, AWindowLimitsWhatIsRead) {
  const std::vector<Token> history = {5, 6, 7, 8, 9, 10, 11};
  ScriptedOptions options{.vocab = 50000};
  const Token all = scripted_next(options, history);
  options.window = 7;
  EXPECT_EQ(scripted_next(options, history), all);
  options.window = 3;
  std::uint64_t state = scripted_start(options), sum = 0;
  for (std::uint32_t i = 0; i < history.size(); ++i) {
    state = scripted_state(state, history[i], 0);
    if (i >= 4) sum += scripted_term(state, i);
  }
  EXPECT_EQ(scripted_next(options, history), *scripted_pick(scripted_best(options, scripted_choice(sum, state), 11), {}));
  EXPECT_NE(scripted_next(options, history), all);
  options.window = 1;
  EXPECT_FALSE(validate(options));
}

TEST(ScriptedOracle, AMaskGivesTheNextBest) {
  ScriptedOptions options;
  for (Token id = 0; id < 200; ++id) {
    ScriptedOracle oracle(options);
    oracle.push(id);
    const std::vector<float> logits = oracle.logits();
    const auto argmax = [&](RowMask mask) {
      std::size_t best = logits.size();
      for (std::size_t i = 0; i < logits.size(); ++i) {
        if (i != mask.a && i != mask.b && (best == logits.size() || logits[i] > logits[best])) best = i;
      }
      return static_cast<Token>(best);
    };
    const Token first = oracle.next();
    const Token second = oracle.next({first, RowMask::kNone});
    const Token third = oracle.next({first, second});
    EXPECT_EQ((std::set<Token>{first, second, third}.size()), 3u);
    EXPECT_EQ(first, argmax({}));
    EXPECT_EQ(second, argmax({first, RowMask::kNone}));
    EXPECT_EQ(third, argmax({second, first}));
    EXPECT_EQ(oracle.next({second, third}), first) << "a mask that does not hit changes nothing";
  }
}

TEST(ScriptedOracle, TheEndComesAsOftenAsAsked) {
  for (const std::uint32_t per_mille : {0u, 100u, 1000u}) {
    const ScriptedOptions options{.eos_per_mille = per_mille};
    int ends = 0;
    ScriptedOracle oracle(options);
    for (int i = 0; i < 4000; ++i) {
      oracle.push(static_cast<Token>(i % 255));
      const bool end = oracle.next() == options.eos();
      ends += end ? 1 : 0;
      if (end) {
        EXPECT_NE(oracle.next({options.eos(), RowMask::kNone}), options.eos());
      }
    }
    const int expected = 4 * static_cast<int>(per_mille);
    const int spread = per_mille == 100 ? 100 : 0;
    EXPECT_GE(ends, expected - spread);
    EXPECT_LE(ends, expected + spread);
  }
}

TEST(ScriptedOracle, ATableChoosesTheBest) {
  ScriptedOptions options{.vocab = 8, .table = {1, 2, 3, 4, 5, 6, 7, 0}};
  ASSERT_FALSE(validate(options).has_error());
  for (Token id = 0; id < 8; ++id) {
    ScriptedOracle oracle(options);
    oracle.push(id);
    EXPECT_EQ(oracle.next(), (id + 1) % 8);
    EXPECT_NE(oracle.next({(id + 1) % 8, RowMask::kNone}), (id + 1) % 8);
    const std::vector<float> logits = oracle.logits();
    EXPECT_EQ(std::max_element(logits.begin(), logits.end()) - logits.begin(), (id + 1) % 8);
  }
}

TEST(ScriptedOracle, RefusesOptionsThatMakeNoSense) {
  const auto code = [](const ScriptedOptions& options) {
    const auto result = validate(options);
    return result.has_error() ? result.error().code : ErrorCode::none;
  };
  EXPECT_EQ(code({}), ErrorCode::none);
  EXPECT_EQ(code({.vocab = 7}), ErrorCode::bad_request);
  EXPECT_EQ(code({.block_size = 0}), ErrorCode::bad_request);
  EXPECT_EQ(code({.max_depth = 0}), ErrorCode::bad_request);
  EXPECT_EQ(code({.eos_per_mille = 1001}), ErrorCode::bad_request);
  EXPECT_EQ(code({.vocab = 8, .table = {1, 2}}), ErrorCode::bad_request);
  EXPECT_EQ(code({.vocab = 8, .table = {1, 2, 3, 4, 5, 6, 7, 8}}), ErrorCode::bad_request);
  EXPECT_EQ(code({.vocab = 8, .texts = {"a"}}), ErrorCode::bad_request);
  EXPECT_EQ(code({.step_ns = -1}), ErrorCode::bad_request);
}

}  // namespace
}  // namespace troupe::device
