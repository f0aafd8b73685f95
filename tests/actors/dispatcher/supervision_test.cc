#include "actors/dispatcher/supervision.h"

#include <gtest/gtest.h>

namespace troupe::actors {
namespace {

SupervisionConfig config() {
  SupervisionConfig c;
  c.max_restarts = 4;
  c.restart_window = 1000;
  c.backoff = 10;
  c.max_backoff = 35;
  return c;
}

TEST(Restarts, ThePauseDoublesUpToItsLimitAndThenItIsGivenUp) {
  Restarts r(config());
  EXPECT_EQ(r.next(100), 110);
  EXPECT_EQ(r.next(120), 140);
  EXPECT_EQ(r.next(150), 185);  // 40, cut to 35
  EXPECT_EQ(r.next(200), 235);
  EXPECT_EQ(r.tries(), 4u);
  EXPECT_EQ(r.next(300), std::nullopt);
  r.forgive();
  EXPECT_EQ(r.next(300), 310);
}

TEST(Restarts, OnlyTriesWithinTheWindowCount) {
  Restarts r(config());
  for (TimeNs now : {100, 200, 300, 400}) EXPECT_TRUE(r.next(now));
  EXPECT_EQ(r.next(1099), std::nullopt);
  EXPECT_EQ(r.next(1250), 1250 + 35 - 0);  // two of four have left it: the third in the window
  EXPECT_EQ(r.tries(), 3u);
}

TEST(Restarts, NoneIfNoneIsAllowed) {
  SupervisionConfig c = config();
  c.max_restarts = 0;
  EXPECT_EQ(Restarts(c).next(1), std::nullopt);
}

}  // namespace
}  // namespace troupe::actors
