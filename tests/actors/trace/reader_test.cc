#include "actors/trace/reader.h"

#include <gtest/gtest.h>

#include "tests/sim/scenario.h"

namespace troupe::actors::trace {
namespace {

std::vector<std::uint8_t> recording_of_a_life() {
  sim::WorldOptions o;
  o.record = true;
  sim::World world(o);
  Request r;
  for (std::uint64_t client = 1; client <= 3; ++client) {
    r.client = client;
    r.prompt.assign(10 * client, static_cast<Token>(client));
    r.stop.max_tokens = 6;
    world.post(r, nullptr);
  }
  world.run();
  world.finish();
  EXPECT_EQ(world.violation(), "");
  return world.recording();
}

TEST(Reader, EveryMessageIsThereWithItsCauseAndItsReceipt) {
  const auto bytes = recording_of_a_life();
  const auto r = parse_recording(bytes.data(), bytes.size());
  ASSERT_TRUE(r) << r.error().what;
  const Recording& rec = r.value();
  ASSERT_TRUE(rec.configs);
  EXPECT_EQ(rec.configs->scheduler.depth, 2u);
  EXPECT_EQ(rec.configs->device.ring_slots, 3u);
  EXPECT_TRUE(rec.configs->model.tokens);
  EXPECT_EQ(rec.damage, "");
  EXPECT_EQ(rec.cut_bytes, 0u);
  EXPECT_EQ(rec.unknown, 0u);
  std::size_t sent = 0, received = 0, about = 0;
  for (const Event& e : rec.events) {
    if (e.head.kind == RecordKind::received) {
      ++received;
      ASSERT_NE(rec.sent(e.head.seq), nullptr);
      EXPECT_EQ(rec.sent(e.head.seq)->head.type, e.head.type);
    } else {
      ++sent;
      EXPECT_NE(e.message.index(), 0u);
      EXPECT_TRUE(e.head.cause == 0 || rec.received(e.head.cause) != nullptr);
      if (const auto* launch = std::get_if<Launch>(&e.message)) {
        EXPECT_EQ(e.head.ticket, launch->plan->ticket);
        EXPECT_EQ(launch->ctx.seq, e.head.seq);
        ++about;
      }
    }
  }
  EXPECT_GT(about, 5u);
  EXPECT_GT(received, 50u);
  EXPECT_GE(sent, received);
}

TEST(Reader, ACutFileReadsUpToTheCut) {
  const auto bytes = recording_of_a_life();
  const auto whole = parse_recording(bytes.data(), bytes.size());
  ASSERT_TRUE(whole);
  std::size_t readable = 0;
  for (std::size_t n = 0; n < bytes.size(); n += 13) {
    const auto r = parse_recording(bytes.data(), n);
    if (!r) {
      EXPECT_EQ(r.error().code, ErrorCode::bad_file);
      continue;
    }
    ++readable;
    EXPECT_LE(r.value().events.size(), whole.value().events.size());
    EXPECT_EQ(r.value().damage, "");
  }
  EXPECT_GT(readable, 0u);
}

TEST(Reader, AChangedByteIsNoticed) {
  const auto bytes = recording_of_a_life();
  for (std::size_t at = 0; at < bytes.size(); at += 7) {
    auto changed = bytes;
    changed[at] ^= 0x40;
    const auto r = parse_recording(changed.data(), changed.size());
    EXPECT_TRUE(!r || !r.value().damage.empty() || r.value().cut_bytes != 0) << at;
  }
}

TEST(Reader, TakesAFileAsItGrows) {
  const auto bytes = recording_of_a_life();
  const auto whole = parse_recording(bytes.data(), bytes.size());
  Reader reader;
  std::size_t events = 0;
  for (std::size_t at = 0; at < bytes.size(); at += 1000) {
    ASSERT_TRUE(reader.feed(bytes.data() + at, std::min<std::size_t>(1000, bytes.size() - at)));
    events += reader.take().size();
  }
  EXPECT_EQ(events, whole.value().events.size());
  EXPECT_EQ(reader.pending(), 0u);
}

TEST(Reader, SaysWhatIsNoRecording) {
  const std::string text = "GGUF, or something else";
  const auto r = parse_recording(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().code, ErrorCode::bad_file);
  EXPECT_EQ(read_recording("there/is/no.such").error().code, ErrorCode::io_failed);
}

TEST(Sender, SeqsHaveNamesThatComeBack) {
  for (const std::uint64_t seq :
       {seq_base({Sender::scheduler, 0}) | 17, seq_base({Sender::driver, 2}) | 1, seq_base({Sender::runtime, 0}) | 5}) {
    EXPECT_EQ(parse_seq(seq_label(seq)), seq) << seq_label(seq);
  }
  for (const char* wrong : {"", "scheduler", "nobody:1", "driver.x:1", "scheduler:", "driver.300:1"})
    EXPECT_EQ(parse_seq(wrong), 0u) << wrong;
}

}  // namespace
}  // namespace troupe::actors::trace
