// The format of a saved state: what is written is read, and nothing else is.
#include "actors/spill/state_file.h"

#include <gtest/gtest.h>

#include <cstring>

namespace troupe::actors {
namespace {

StateHeader header() {
  StateHeader h;
  h.seq = {3, 0x0123456789ABu};
  h.positions = 40;
  h.first_block = 1;
  h.n_blocks = 2;
  h.n_parts = 3;
  h.block_size = 16;
  h.block_bytes = 128;
  h.model = 0xFEDCBA9876543210u;
  h.payload_crc = 0xCBF43926u;
  return h;
}
constexpr std::uint64_t kFileBytes = kStateHeaderBytes + 640;

TEST(StateFile, TheBytesAreAsTheHeaderSays) {
  const StateHeaderBytes b = encode(header());
  const auto u8 = [&](std::size_t at) { return std::to_integer<unsigned>(b[at]); };
  EXPECT_EQ(std::memcmp(b.data(), "TRPSTATE", 8), 0);
  EXPECT_EQ(u8(8), 2u);
  EXPECT_EQ(u8(12), 80u);
  EXPECT_EQ(u8(16), 3u);
  EXPECT_EQ(u8(20), 3u);
  EXPECT_EQ(u8(24), 0xABu);
  EXPECT_EQ(u8(29), 0x01u);
  EXPECT_EQ(u8(32), 40u);
  EXPECT_EQ(u8(36), 1u);
  EXPECT_EQ(u8(40), 2u);
  EXPECT_EQ(u8(44), 16u);
  EXPECT_EQ(u8(48), 128u);
  EXPECT_EQ(u8(57), 2u) << "640 bytes of payload";
  EXPECT_EQ(u8(64), 0x10u);
  EXPECT_EQ(u8(75), 0xCBu);
}

// The check value of CRC-32 (ISO-HDLC), in one piece and in two.
TEST(StateFile, TheChecksumIsTheKnownOne) {
  StateCrc whole, pieces;
  whole.process_bytes("123456789", 9);
  EXPECT_EQ(whole.checksum(), 0xCBF43926u);
  pieces.process_bytes("1234", 4);
  pieces.process_bytes("56789", 5);
  EXPECT_EQ(pieces.checksum(), 0xCBF43926u);
}

TEST(StateFile, WhatWasWrittenIsTaken) {
  StateHeader expected = header();
  expected.payload_crc = 0;
  const auto crc = check_header(encode(header()), kFileBytes, expected);
  ASSERT_TRUE(crc) << crc.error().what;
  EXPECT_EQ(crc.value(), 0xCBF43926u);
}

TEST(StateFile, NoChangedByteOfAHeaderIsTaken) {
  for (std::size_t at = 0; at < kStateHeaderBytes; ++at) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      StateHeaderBytes b = encode(header());
      b[at] ^= static_cast<std::byte>(1u << bit);
      const auto crc = check_header(b, kFileBytes, header());
      ASSERT_FALSE(crc) << "byte " << at << " bit " << bit;
      EXPECT_EQ(crc.error().code, ErrorCode::bad_file);
    }
  }
}

TEST(StateFile, NoOtherLengthIsTaken) {
  const StateHeaderBytes b = encode(header());
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{79}, kFileBytes - 1, kFileBytes + 1, ~std::uint64_t{0}})
    EXPECT_FALSE(check_header(b, bytes, header())) << bytes;
  for (std::size_t n = 0; n < kStateHeaderBytes; ++n) EXPECT_FALSE(check_header(std::span(b).first(n), kFileBytes, header())) << n;
}

// A header that is whole and honest, of something else than was asked for.
TEST(StateFile, NothingElseIsTaken) {
  const auto refused = [](auto&& change) {
    StateHeader other = header();
    change(other);
    return !check_header(encode(other), kStateHeaderBytes + other.payload_bytes(), header());
  };
  EXPECT_TRUE(refused([](StateHeader& h) { h.seq.number += 1; }));
  EXPECT_TRUE(refused([](StateHeader& h) { h.seq.incarnation += 1; }));
  EXPECT_TRUE(refused([](StateHeader& h) { h.positions -= 1; }));
  EXPECT_TRUE(refused([](StateHeader& h) { h.first_block = 0; }));
  EXPECT_TRUE(refused([](StateHeader& h) { h.n_blocks = 0xFFFFFFFF; }));
  EXPECT_TRUE(refused([](StateHeader& h) { h.block_size = 0; }));
  EXPECT_TRUE(refused([](StateHeader& h) { h.block_bytes = ~std::uint64_t{0}; }));
  EXPECT_TRUE(refused([](StateHeader& h) { h.model += 1; }));
  EXPECT_FALSE(refused([](StateHeader&) {}));
}

TEST(StateFile, AModelIsAnotherByItsArithmetic) {
  ModelInfo a;
  a.name = "Tiny";
  a.arithmetic_id = "host/exact";
  ModelInfo b = a;
  EXPECT_EQ(model_id(a), model_id(b));
  b.arithmetic_id = "host/fast";
  EXPECT_NE(model_id(a), model_id(b));
  b = a;
  b.block_size = 32;
  EXPECT_NE(model_id(a), model_id(b));
  b = a;
  b.name = "Tin", b.architecture = "y";
  EXPECT_NE(model_id(a), model_id(b));
}

TEST(StateFile, NamesAreOursOrNot) {
  EXPECT_EQ(state_file_name({1, 327685}), "1-327685.kv");
  for (const char* name : {"1-327685.kv", "1-5.kv.part", "12-0.kv"}) EXPECT_TRUE(is_state_file_name(name)) << name;
  for (const char* name :
       {"", ".kv", "-.kv", "1-.kv", "-5.kv", "1-5", "1-5.kv.bak", "x1-5.kv", "1-5x.kv", "1-5.KV", "1-5.part", "../1-5.kv"})
    EXPECT_FALSE(is_state_file_name(name)) << name;
}

}  // namespace
}  // namespace troupe::actors
