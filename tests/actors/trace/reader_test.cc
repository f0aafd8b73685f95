#include "actors/trace/reader.h"

#include <gtest/gtest.h>

#include <initializer_list>

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

// The check value of CRC-32C, and the instruction against the table for every length and alignment of the last bytes.
TEST(Format, TheChecksumIsCrc32cWithAndWithoutTheInstruction) {
  std::vector<std::uint8_t> bytes;
  for (const char c : std::string("123456789")) bytes.push_back(static_cast<std::uint8_t>(c));
  EXPECT_EQ(crc32c(bytes.data(), bytes.size()), 0xE3069283u);
  for (std::uint32_t i = 0; i < 100; ++i) bytes.push_back(static_cast<std::uint8_t>(i * 37 + 11));
  for (std::size_t from = 0; from < 8; ++from)
    for (std::size_t n = 0; from + n <= bytes.size(); ++n)
      EXPECT_EQ(crc32c(bytes.data() + from, n), crc32c_by_table(bytes.data() + from, n)) << from << " " << n;
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

// The file of a recording with one block of these records, whose checksum is right.
std::vector<std::uint8_t> file_of(std::uint32_t n, const std::vector<std::uint8_t>& records) {
  std::vector<std::uint8_t> out = encode_file_start(make_header({}, false)), block(kBlockPrefix);
  put_le(block.data(), kBlockMagic);
  put_le(block.data() + 8, static_cast<std::uint32_t>(records.size()));
  put_le(block.data() + 12, n);
  block.insert(block.end(), records.begin(), records.end());
  put_le(block.data() + 4, crc32c(block.data() + 8, block.size() - 8));
  out.insert(out.end(), block.begin(), block.end());
  return out;
}

// What is said of a recording of one message, `body` its encoded form; "" = it was read.
std::string said_of(std::uint16_t type, const std::vector<std::uint8_t>& body, std::uint64_t size) {
  Bytes b;
  b.byte(static_cast<std::uint8_t>(RecordKind::sent));
  for (const std::uint64_t x : {std::uint64_t{3 << 8}, std::uint64_t{1}, std::uint64_t{0}, std::uint64_t{1}})
    b.varint(x);                                               // seq, time, thread
  for (const std::uint64_t x : {3 << 8, 4 << 8}) b.varint(x);  // from, to
  b.varint(type);
  for (int i = 0; i < 7; ++i) b.varint(0);  // cause, request, ticket, payloads
  b.varint(size);
  b.raw(body.data(), body.size());
  const auto file = file_of(1, {b.data(), b.data() + b.size()});
  const auto r = parse_recording(file.data(), file.size());
  EXPECT_TRUE(r) << "the header is right";
  EXPECT_EQ(r.value().events.empty(), !r.value().damage.empty());
  return r.value().damage;
}

std::vector<std::uint8_t> varints(std::initializer_list<std::uint64_t> xs) {
  Bytes b;
  for (const std::uint64_t x : xs) b.varint(x);
  return {b.data(), b.data() + b.size()};
}

// What nobody writes, with right checksums: each is refused with a sentence, and nothing is set aside by what it says.
TEST(Reader, RefusesWhatIsMadeUp) {
  const std::uint64_t huge = std::uint64_t{1} << 60;
  const std::uint16_t ended = kTypeOf<Ended>, launch = kTypeOf<Launch>;
  EXPECT_EQ(said_of(ended, varints({0, 0, 1, 7, 1, 0, 0, 1}), 8), "") << "the control: a message of this form is read";
  EXPECT_NE(said_of(ended, varints({0, 0, huge}), 11), "") << "a list that is longer than the file";
  EXPECT_NE(said_of(ended, varints({0, 0, 2, 7, 1, 0, 0, 1}), 8), "") << "a list that is longer than the message";
  EXPECT_NE(said_of(ended, varints({0, 0, 1, 7, 1, 0, 0, 1}), huge), "") << "a message that is longer than the file";
  EXPECT_NE(said_of(ended, varints({0, 0, 1, 7, 1, 0, 0, 1, 9}), 9), "") << "bytes behind the message";
  EXPECT_NE(said_of(9999, varints({0, 0}), 2), "") << "a type that the header does not have";
  EXPECT_NE(said_of(launch, varints({0, 0, 99, 1}), 4), "") << "a payload that was not written before";
  EXPECT_NE(said_of(launch, varints({0, 0, 0, 1}), 4), "") << "a launch without a plan";
  EXPECT_EQ(said_of(kTypeOf<Deliver>, varints({0, 0, 1, 0, 0, 0, 0}), 7), "") << "the control: an empty batch is read";
  for (const std::uint16_t type : {kTypeOf<Deliver>, kTypeOf<Sample>, kTypeOf<Sampled>, kTypeOf<Enqueue>})
    EXPECT_NE(said_of(type, varints({0, 0, 0}), 3), "") << type_name(type) << " without its payload";
  auto many = file_of(0xFFFFFFFF, {1});
  EXPECT_NE(parse_recording(many.data(), many.size()).value().damage, "") << "more records than bytes";
  auto long_block = file_of(0, {});
  put_le(long_block.data() + long_block.size() - kBlockPrefix + 8, std::uint32_t{0xFFFFFFFF});
  EXPECT_NE(parse_recording(long_block.data(), long_block.size()).value().damage, "") << "a block of 4 GiB";
}

TEST(Reader, SaysWhatIsWrongWithAHeader) {
  const std::vector<std::uint8_t> right = encode_file_start(make_header({}, false));
  const auto said = [&](std::size_t at, std::uint32_t x, bool fix) {
    auto file = right;
    put_le(file.data() + at, x);
    if (fix) put_le(file.data() + 12, crc32c(file.data() + kFilePrefix, file.size() - kFilePrefix));
    const auto r = parse_recording(file.data(), file.size());
    return r ? "" : r.error().what;
  };
  EXPECT_EQ(said(8, kFileVersion, true), "") << "the control";
  EXPECT_NE(said(8, 99, false).find("format 99"), std::string::npos) << said(8, 99, false);
  EXPECT_NE(said(16, 0xFFFFFFF0, false).find("4294967280 bytes"), std::string::npos);
  EXPECT_NE(said(12, 1, false).find("checksum"), std::string::npos);
  EXPECT_NE(said(kFilePrefix, 0xFFFFFFFF, true).find("cannot be decoded"), std::string::npos) << "the length of a text";
  EXPECT_NE(parse_recording(right.data(), right.size() - 1).error().what.find("cut off within its header"), std::string::npos);
}

TEST(Sender, SeqsHaveNamesThatComeBack) {
  for (const std::uint64_t seq :
       {seq_base({Sender::scheduler, 0}) | 17, seq_base({Sender::driver, 2}) | 1, seq_base({Sender::runtime, 0}) | 5,
        seq_base({Sender::delivery, 0}, {kFront, 1}) | 9, seq_base({Sender::driver, 3}, {kFirstReplica + 12, 3}) | 8}) {
    EXPECT_EQ(parse_seq(seq_label(seq)), seq) << seq_label(seq);
  }
  for (const char* wrong : {"", "scheduler", "nobody:1", "driver.x:1", "scheduler:", "driver.300:1"})
    EXPECT_EQ(parse_seq(wrong), 0u) << wrong;
}

}  // namespace
}  // namespace troupe::actors::trace
