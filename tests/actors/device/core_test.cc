#include "actors/device/core.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <random>
#include <vector>

namespace troupe::actors {
namespace {

constexpr TimeNs kTimeout = 1000;

Ticket t(std::uint64_t step) { return {1, step}; }
Watch watch(std::uint64_t step, std::uint32_t slot, ErrorCode code = ErrorCode::none) {
  return {.ctx = {},
          .ticket = t(step),
          .ring_slot = slot,
          .n_rows = 4,
          .n_logits = 1,
          .error = {DeviceError::Phase::forward, code, 0, 0, "watch"}};
}
EventDone done(std::uint64_t step, std::uint32_t slot, ErrorCode code = ErrorCode::none) {
  return {.ctx = {}, .ticket = t(step), .ring_slot = slot, .error = {DeviceError::Phase::forward, code, 0, 0, "event"}};
}

class DeviceCoreTest : public ::testing::Test {
 protected:
  template <class M>
  void on(const M& m, TimeNs now = 0) {
    core.on(m, now, out);
    out.drain([&](auto&& x) {
      if constexpr (std::is_same_v<std::decay_t<decltype(x)>, ReadSlot>) {
        reads.push_back(std::move(x));
      } else if constexpr (std::is_same_v<std::decay_t<decltype(x)>, CopyDone>) {
        copies.push_back(std::move(x));
      } else {
        timers.push_back(x.at);
      }
    });
  }
  DeviceCore core{3, kTimeout, 2};
  DeviceOutbox out;
  std::vector<ReadSlot> reads;
  std::vector<CopyDone> copies;
  std::vector<TimeNs> timers;
};

TEST_F(DeviceCoreTest, ReadsWhenTheEventFollowsTheWatch) {
  on(watch(1, 2));
  EXPECT_TRUE(reads.empty());
  EXPECT_EQ(core.watched(), 1u);
  on(done(1, 2));
  ASSERT_EQ(reads.size(), 1u);
  EXPECT_EQ(reads[0].ticket, t(1));
  EXPECT_EQ(reads[0].ring_slot, 2u);
  EXPECT_EQ(reads[0].n_rows, 4u);
  EXPECT_EQ(reads[0].n_logits, 1u);
  EXPECT_EQ(reads[0].error.code, ErrorCode::none);
  EXPECT_EQ(core.watched(), 0u);
}

Watch half(std::uint64_t step, std::uint32_t slot, ErrorCode code = ErrorCode::device_failed) {
  Watch m = watch(step, slot, code);
  m.on_stream = true;
  return m;
}

// R4: its slot is answered, and so used again, only when the stream has passed what was enqueued.
TEST_F(DeviceCoreTest, AStepThatWasEnqueuedHalfFailsWhenItsEventComes) {
  on(half(1, 0));
  on(watch(2, 1));
  on(done(2, 1));
  EXPECT_TRUE(reads.empty());
  EXPECT_EQ(core.watched(), 2u);
  on(done(1, 0));
  ASSERT_EQ(reads.size(), 2u);
  EXPECT_EQ(reads[0].ticket, t(1));
  EXPECT_EQ(reads[0].error.code, ErrorCode::device_failed);
  EXPECT_EQ(reads[0].error.what, "watch");
  EXPECT_EQ(reads[1].error.code, ErrorCode::none);
  // The slot's next step does not inherit the error, and the event may come first.
  on(watch(3, 0));
  on(done(3, 0));
  on(done(4, 2));
  on(half(4, 2));
  ASSERT_EQ(reads.size(), 4u);
  EXPECT_EQ(reads[2].error.code, ErrorCode::none);
  EXPECT_EQ(reads[3].error.what, "watch");
}

TEST_F(DeviceCoreTest, AStepThatWasEnqueuedHalfAndNeverEndsIsALostDevice) {
  on(half(1, 0), 10);
  on(Tick{}, 10 + kTimeout);
  ASSERT_EQ(reads.size(), 1u);
  EXPECT_EQ(reads[0].error.code, ErrorCode::device_lost);
  on(half(2, 1, ErrorCode::device_lost));
  ASSERT_EQ(reads.size(), 2u);
  EXPECT_EQ(core.watched(), 0u);
}

// Places follow the ring's slots; copies are numbered apart from steps, and neither waits for the other's answer.
TEST_F(DeviceCoreTest, CopiesAreAnsweredApartFromSteps) {
  on(watch(7, 0));
  on(watch(1, 3));
  on(done(2, 4));
  on(watch(2, 4));
  EXPECT_TRUE(copies.empty()) << "copy 1 is not done, and they are answered in order";
  EXPECT_EQ(core.watched(), 3u);
  on(done(1, 3));
  ASSERT_EQ(copies.size(), 2u);
  EXPECT_EQ(copies[0].copy, t(1));
  EXPECT_EQ(copies[0].place, 0u);
  EXPECT_EQ(copies[1].place, 1u);
  EXPECT_EQ(copies[1].error.code, ErrorCode::none);
  EXPECT_TRUE(reads.empty());
  on(watch(3, 3, ErrorCode::device_failed));
  ASSERT_EQ(copies.size(), 3u);
  EXPECT_EQ(copies[2].error.code, ErrorCode::device_failed);
  on(done(7, 0));
  EXPECT_EQ(reads.size(), 1u);
}

TEST_F(DeviceCoreTest, ACopyThatDoesNotCompleteIsALostDevice) {
  on(watch(1, 3), 10);
  ASSERT_EQ(timers, (std::vector<TimeNs>{10 + kTimeout}));
  on(watch(7, 0), 20);
  on(Tick{}, 10 + kTimeout);
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].error.code, ErrorCode::device_lost);
  ASSERT_EQ(reads.size(), 1u);
  EXPECT_EQ(reads[0].error.code, ErrorCode::device_lost);
  on(watch(2, 4), 30 + kTimeout);
  ASSERT_EQ(copies.size(), 2u);
  EXPECT_EQ(copies[1].error.code, ErrorCode::device_lost) << "so is every later one";
}

TEST_F(DeviceCoreTest, ReadsWhenTheWatchFollowsTheEvent) {
  on(done(1, 0));
  EXPECT_TRUE(reads.empty());
  EXPECT_EQ(core.watched(), 0u);
  on(watch(1, 0));
  ASSERT_EQ(reads.size(), 1u);
  EXPECT_EQ(reads[0].n_rows, 4u);
  EXPECT_TRUE(timers.empty()) << "nothing is awaited";
}

TEST_F(DeviceCoreTest, AnErrorOfTheStreamComesWithTheReadInBothOrders) {
  on(watch(1, 0));
  on(done(1, 0, ErrorCode::device_failed));
  on(done(2, 1, ErrorCode::device_failed));
  on(watch(2, 1));
  ASSERT_EQ(reads.size(), 2u);
  for (const ReadSlot& read : reads) {
    EXPECT_EQ(read.error.code, ErrorCode::device_failed);
    EXPECT_EQ(read.error.what, "event");
  }
  EXPECT_FALSE(core.lost());
}

TEST_F(DeviceCoreTest, AFailedEnqueueIsAnsweredWithoutAnEvent) {
  on(watch(1, 0, ErrorCode::device_failed));
  ASSERT_EQ(reads.size(), 1u);
  EXPECT_EQ(reads[0].error.what, "watch");
  on(done(1, 0));
  EXPECT_EQ(reads.size(), 1u);
  EXPECT_EQ(core.ignored(), 1u);
}

TEST_F(DeviceCoreTest, ASlotIsUsedAgain) {
  for (std::uint64_t step = 1; step <= 9; ++step) {
    const auto slot = static_cast<std::uint32_t>(step % 3);
    if (step % 2 == 0) {
      on(watch(step, slot));
      on(done(step, slot));
    } else {
      on(done(step, slot));
      on(watch(step, slot));
    }
    ASSERT_EQ(reads.size(), step);
    EXPECT_EQ(reads.back().ticket, t(step));
  }
  EXPECT_EQ(core.ignored(), 0u);
}

TEST_F(DeviceCoreTest, DuplicatesAreDropped) {
  on(watch(1, 0));
  on(watch(1, 0));
  on(done(1, 0));
  on(done(1, 0));
  on(watch(1, 0));
  EXPECT_EQ(reads.size(), 1u);
  EXPECT_EQ(core.ignored(), 3u);
  on(done(2, 0));
  on(done(2, 0));
  on(watch(2, 0));
  EXPECT_EQ(reads.size(), 2u);
  on(done(1, 0));  // late, the slot has moved on
  EXPECT_EQ(core.ignored(), 5u);
  on(done(9, 5));  // no such slot
  EXPECT_EQ(core.ignored(), 6u);
  EXPECT_EQ(reads.size(), 2u);
}

TEST_F(DeviceCoreTest, AWatchedSlotIsNotOverwritten) {
  on(watch(1, 0));
  on(watch(4, 0));
  ASSERT_EQ(reads.size(), 1u);
  EXPECT_EQ(reads[0].ticket, t(4));
  EXPECT_EQ(reads[0].error.code, ErrorCode::internal);
  on(done(4, 0));
  EXPECT_EQ(reads.size(), 1u);
  on(done(1, 0));
  ASSERT_EQ(reads.size(), 2u);
  EXPECT_EQ(reads[1].ticket, t(1));
  EXPECT_EQ(reads[1].error.code, ErrorCode::none);
  on(watch(5, 7));
  ASSERT_EQ(reads.size(), 3u);
  EXPECT_EQ(reads[2].error.code, ErrorCode::internal) << "no such slot";
}

TEST_F(DeviceCoreTest, ATimeoutLosesTheDevice) {
  on(watch(1, 0), 100);
  on(watch(2, 1), 200);
  on(done(3, 2), 250);  // its watch comes after the loss
  EXPECT_EQ(timers, (std::vector<TimeNs>{100 + kTimeout}));
  on(Tick{}, 100 + kTimeout - 1);  // early: asks again
  EXPECT_TRUE(reads.empty());
  EXPECT_EQ(timers.back(), 100 + kTimeout);
  on(Tick{}, 100 + kTimeout);
  ASSERT_EQ(reads.size(), 2u);
  EXPECT_EQ(reads[0].ticket, t(1)) << "oldest first";
  EXPECT_EQ(reads[1].ticket, t(2));
  on(watch(3, 2), 2000);
  on(watch(4, 0), 2000);
  ASSERT_EQ(reads.size(), 4u);
  for (const ReadSlot& read : reads) {
    EXPECT_EQ(read.error.code, ErrorCode::device_lost);
    EXPECT_NE(read.error.what.find("t1.1"), std::string::npos);
  }
  on(done(1, 0), 2001);
  on(done(4, 0), 2001);
  EXPECT_EQ(reads.size(), 4u) << "answered once";
  EXPECT_TRUE(core.lost());
  EXPECT_EQ(core.watched(), 0u);
}

TEST_F(DeviceCoreTest, TheTimerFollowsTheOldestWatch) {
  on(watch(1, 0), 0);
  on(watch(2, 1), 300);
  on(done(1, 0), 400);
  on(Tick{}, kTimeout);
  EXPECT_EQ(timers, (std::vector<TimeNs>{kTimeout, 300 + kTimeout})) << "one timer at a time";
  on(done(2, 1), 1200);
  on(Tick{}, 300 + kTimeout);
  EXPECT_EQ(timers.size(), 2u) << "nothing is watched: no timer";
  EXPECT_FALSE(core.lost());
  on(watch(3, 2), 5000);
  EXPECT_EQ(timers.back(), 5000 + kTimeout);
}

TEST_F(DeviceCoreTest, AStepThatReportsTheLossLosesEveryStep) {
  on(watch(1, 0));
  on(watch(2, 1));
  on(done(1, 0, ErrorCode::device_lost));
  ASSERT_EQ(reads.size(), 2u);
  EXPECT_EQ(reads[1].ticket, t(2));
  EXPECT_EQ(reads[1].error.code, ErrorCode::device_lost);
  on(watch(3, 2));
  ASSERT_EQ(reads.size(), 3u);
  EXPECT_EQ(reads[2].error.code, ErrorCode::device_lost);
}

TEST(DeviceCore, WithoutATimeoutNoTimerIsAsked) {
  DeviceCore core(1, 0);
  DeviceOutbox out;
  core.on(watch(1, 0), 0, out);
  core.on(Tick{}, 1 << 30, out);
  EXPECT_TRUE(out.empty());
}

// The scheduler applies results in the order of the stream: a failed enqueue may not overtake the steps before it.
TEST_F(DeviceCoreTest, AnswersInTheOrderOfTheTickets) {
  on(watch(1, 0));
  on(watch(2, 1));
  on(watch(3, 2, ErrorCode::device_failed));
  on(done(2, 1));
  EXPECT_TRUE(reads.empty());
  EXPECT_EQ(core.watched(), 3u);
  on(done(1, 0));
  ASSERT_EQ(reads.size(), 3u);
  for (std::uint64_t i = 0; i < 3; ++i) EXPECT_EQ(reads[i].ticket, t(i + 1));
  EXPECT_EQ(reads[1].error.code, ErrorCode::none);
  EXPECT_EQ(reads[2].error.what, "watch");
}

// Any order, with repeats and losses of time: one answer per ticket that was watched, and the oldest step that the core
// knows of is the only reason for one to wait.
TEST(DeviceCore, AnswersEachTicketOnceInAnyOrder) {
  for (std::uint32_t seed = 0; seed < 500; ++seed) {
    std::mt19937 random(seed);
    DeviceCore core(3, 50);
    DeviceOutbox out;
    std::map<std::uint64_t, int> answers;
    struct Open {
      std::uint64_t step = 0;
      bool watched = false, done = false;
    };
    Open open[3];
    std::uint64_t next = 1;
    TimeNs now = 0;
    for (int i = 0; i < 400; ++i) {
      now += random() % 4;
      const std::uint32_t slot = random() % 3;
      Open& o = open[slot];
      if (o.step == 0 || (o.watched && answers[o.step] != 0)) o = {next++, false, false};
      switch (random() % 5) {
        case 0:
        case 1:
          core.on(watch(o.step, slot), now, out);
          o.watched = true;
          break;
        case 2:
        case 3:
          core.on(done(o.step, slot), now, out);
          o.done = true;
          break;
        default:
          core.on(Tick{}, now, out);
      }
      out.drain([&](auto&& x) {
        if constexpr (std::is_same_v<std::decay_t<decltype(x)>, ReadSlot>) ++answers[x.ticket.step];
      });
      const Open* oldest = nullptr;
      for (const Open& x : open) {
        if (!(x.watched || x.done) || answers[x.step] != 0) continue;
        if (oldest == nullptr || x.step < oldest->step) oldest = &x;
      }
      if (oldest != nullptr) {
        ASSERT_FALSE(oldest->watched && (oldest->done || core.lost())) << "seed " << seed << " step " << oldest->step;
      }
      if (answers[o.step] != 0) {
        ASSERT_TRUE(o.watched && (o.done || core.lost())) << "seed " << seed << " step " << o.step;
      }
    }
    for (const auto& [step, n] : answers) EXPECT_LE(n, 1) << "seed " << seed << " step " << step;
  }
}

// Of six ring slots the last three are the prefill stream's.
TEST(DeviceCoreTwoStreams, EachAnswersInItsOwnOrder) {
  DeviceCore core(6, kTimeout, 1, 3);
  DeviceOutbox out;
  std::vector<std::uint64_t> read;
  const auto on = [&](const auto& m) {
    core.on(m, 0, out);
    out.drain([&](auto&& x) {
      if constexpr (std::is_same_v<std::decay_t<decltype(x)>, ReadSlot>) read.push_back(x.ticket.step);
    });
  };
  on(watch(1, 3)), on(watch(2, 0)), on(watch(3, 4)), on(watch(4, 1));
  on(done(4, 1));
  EXPECT_TRUE(read.empty()) << "step 2 is before it, on its stream";
  on(done(2, 0));
  EXPECT_EQ(read, (std::vector<std::uint64_t>{2, 4})) << "step 1 is on the other";
  on(done(3, 4));
  EXPECT_EQ(read.size(), 2u);
  on(done(1, 3));
  EXPECT_EQ(read, (std::vector<std::uint64_t>{2, 4, 1, 3}));
}

}  // namespace
}  // namespace troupe::actors
