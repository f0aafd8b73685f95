#include "actors/sampler/history.h"

#include <gtest/gtest.h>

namespace troupe::actors {
namespace {

std::vector<float> applied(const History& h, const SamplingParams& p, std::vector<float> logits) {
  h.apply(p, logits);
  return logits;
}

TEST(History, RepetitionThenFrequencyThenPresence) {
  Request r;
  r.prompt = {3, 1, 3};
  History h;
  h.start(r, 5);
  h.add(std::vector<Token>{1, 4});
  h.add(std::vector<Token>{4});
  EXPECT_EQ(h.outputs(), 3u);
  const SamplingParams p{.repetition_penalty = 2, .presence_penalty = 0.25f, .frequency_penalty = 0.5f};
  EXPECT_EQ(applied(h, p, {8, 8, 8, 8, 8}), (std::vector<float>{8, 4 - 0.75f, 8, 4, 4 - 1.25f}));
  EXPECT_EQ(applied(h, p, {-8, -8, 0, 0, -8}), (std::vector<float>{-8, -16 - 0.75f, 0, 0, -16 - 1.25f}));
  EXPECT_EQ(applied(h, {}, {8, 8, 8, 8, 8}), (std::vector<float>{8, 8, 8, 8, 8}));
}

TEST(History, StartForgets) {
  Request r;
  r.prompt = {0};
  History h;
  h.start(r, 2);
  h.add(std::vector<Token>{1});
  r.prompt = {};
  h.start(r, 2);
  EXPECT_EQ(h.outputs(), 0u);
  EXPECT_EQ(applied(h, {.repetition_penalty = 2, .presence_penalty = 1}, {8, 8}), (std::vector<float>{8, 8}));
}

TEST(History, IdsOutsideTheVocabularyArePassedOver) {
  Request r;
  r.prompt = {0xffffffffu, 1};
  History h;
  h.start(r, 2);
  h.add(std::vector<Token>{2});
  EXPECT_EQ(applied(h, {.repetition_penalty = 2}, {8, 8}), (std::vector<float>{8, 4}));
}

}  // namespace
}  // namespace troupe::actors
