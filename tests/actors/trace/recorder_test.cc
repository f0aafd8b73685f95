#include "actors/trace/recorder.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "actors/trace/reader.h"

namespace troupe::actors::trace {
namespace {

std::string temporary(const char* name) { return testing::TempDir() + "/" + name; }

RecordHead head(std::uint64_t count, TimeNs time) {
  RecordHead h;
  h.from = {Sender::scheduler, 0};
  h.seq = seq_base(h.from) | count;
  h.time = time;
  return h;
}

TEST(Recorder, WritesEverythingByTheTimeItHasStopped) {
  TraceOptions o;
  o.file = temporary("recorder_all.trace");
  auto recorder = Recorder::start(o, {});
  ASSERT_TRUE(recorder) << recorder.error().what;
  Lane& a = recorder.value()->lane(16 * 1024);
  Lane& b = recorder.value()->lane(16 * 1024);
  for (std::uint64_t i = 1; i <= 50; ++i) {
    (i % 2 == 0 ? a : b).push(head(i, static_cast<TimeNs>(i)), Cancel{{}, i}, kLaneOps<Cancel>);
    recorder.value()->poke();
  }
  ASSERT_TRUE(recorder.value()->stop());
  a.push(head(51, 51));  // too late: neither recorded nor harmful
  const auto r = read_recording(o.file);
  ASSERT_TRUE(r) << r.error().what;
  ASSERT_EQ(r.value().events.size(), 50u);
  for (std::uint64_t i = 1; i <= 50; ++i) EXPECT_EQ(std::get<Cancel>(r.value().events[i - 1].message).client, i);
  EXPECT_EQ(recorder.value()->figures().messages, 50u);
  EXPECT_EQ(recorder.value()->figures().lost, 0u);
}

TEST(Recorder, WhatFoundNoRoomIsCountedInTheFile) {
  TraceOptions o;
  o.file = temporary("recorder_lost.trace");
  auto recorder = Recorder::start(o, {});
  ASSERT_TRUE(recorder);
  Lane& lane = recorder.value()->lane(4096);
  for (std::uint64_t i = 1; i <= 5000; ++i) lane.push(head(i, 1), Cancel{{}, i}, kLaneOps<Cancel>);
  ASSERT_TRUE(recorder.value()->stop());
  const auto r = read_recording(o.file);
  ASSERT_TRUE(r);
  EXPECT_GT(r.value().lost, 0u);
  EXPECT_EQ(r.value().sent_at.size() + r.value().lost, 5000u);
}

// Whoever has nothing better to do encodes a record at a time; a file, which may have to be waited for, is left to the
// recorder's own thread.
TEST(Recorder, IsHelpedARecordAtATimeUnlessThereIsAFile) {
  for (const bool file : {false, true}) {
    TraceOptions o;
    if (file) o.file = temporary("recorder_work.trace");
    auto recorder = Recorder::start(o, {});
    ASSERT_TRUE(recorder);
    Lane& lane = recorder.value()->lane(16 * 1024);
    for (std::uint64_t i = 1; i <= 20; ++i) lane.push(head(i, 1), Cancel{{}, i}, kLaneOps<Cancel>);
    int taken = 0;
    while (recorder.value()->work()) ++taken;
    EXPECT_LE(taken, file ? 0 : 20);
    ASSERT_TRUE(recorder.value()->stop());
    EXPECT_EQ(recorder.value()->figures().messages, 20u);
    EXPECT_FALSE(recorder.value()->work());
  }
}

TEST(Recorder, TheFlightRecorderKeepsTheNewestWithinItsBound) {
  TraceOptions o;
  o.flight_bytes = 20'000;
  auto recorder = Recorder::start(o, {});
  ASSERT_TRUE(recorder);
  Lane& lane = recorder.value()->lane(16 * 1024);
  const std::string path = temporary("recorder_flight.trace");
  for (std::uint64_t i = 1; i <= 4000; ++i) {
    lane.push(head(i, static_cast<TimeNs>(i)), Cancel{{}, i}, kLaneOps<Cancel>);
    if (i % 40 != 0) continue;
    ASSERT_TRUE(recorder.value()->dump(path));  // dumping takes what the lane holds
    EXPECT_TRUE(i != 40 || read_recording(path).value().header.from_start);
  }
  const auto r = read_recording(path);
  ASSERT_TRUE(r) << r.error().what;
  EXPECT_FALSE(r.value().header.from_start);
  EXPECT_EQ(r.value().damage, "");
  ASSERT_FALSE(r.value().events.empty());
  EXPECT_EQ(std::get<Cancel>(r.value().events.back().message).client, 4000u);
  EXPECT_LT(r.value().events.size(), 4000u);
  EXPECT_GT(r.value().events.size(), 400u);
}

TEST(Recorder, ALostDeviceIsDumpedOnce) {
  TraceOptions o;
  o.flight_dir = temporary("recorder_fault");
  std::filesystem::remove_all(o.flight_dir);
  std::filesystem::create_directory(o.flight_dir);
  auto recorder = Recorder::start(o, {});
  ASSERT_TRUE(recorder);
  Lane& lane = recorder.value()->lane(16 * 1024);
  EventDone done;
  done.error.code = ErrorCode::device_lost;
  lane.push(head(1, 1), done, kLaneOps<EventDone>);
  lane.push(head(2, 2), done, kLaneOps<EventDone>);
  ASSERT_TRUE(recorder.value()->stop());
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(o.flight_dir)) {
    ++files;
    EXPECT_EQ(read_recording(entry.path()).value().events.size(), 2u);
  }
  EXPECT_EQ(files, 1u);
}

TEST(Recorder, ASenderThatIsFarAheadHelpsAndLosesNothing) {
  auto recorder = Recorder::start({}, {});
  ASSERT_TRUE(recorder);
  Lane& lane = recorder.value()->lane(128 * 1024);
  for (std::uint64_t i = 1; i <= 20'000; ++i) {
    lane.push(head(i, static_cast<TimeNs>(i)), Cancel{{}, i}, kLaneOps<Cancel>);
    if (lane.behind()) recorder.value()->help(lane);
  }
  ASSERT_TRUE(recorder.value()->stop());
  EXPECT_EQ(recorder.value()->figures().messages + recorder.value()->figures().lost, 20'000u);
  EXPECT_LT(recorder.value()->figures().lost, 10'000u);
}

TEST(Recorder, ErrorsAreValues) {
  TraceOptions o;
  o.file = "no/such/folder/x.trace";
  const auto r = Recorder::start(o, {});
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().code, ErrorCode::io_failed);
  TraceOptions off;
  off.flight_bytes = 0;
  EXPECT_EQ(Recorder::start(off, {}).value()->dump(temporary("x")).error().code, ErrorCode::bad_request);
}

}  // namespace
}  // namespace troupe::actors::trace
