// The file that holds the state of one preempted sequence: a header of fixed size, then the KV of its blocks as the
// model packs them, then its recurrent state, if the model has any, in parts as long as a block. All integers are little-endian.
//
//   0  "TRPSTATE"            32  positions u32        56  payload bytes u64
//   8  version u32           36  first block u32      64  model u64, model_id()
//  12  header bytes u32      40  blocks u32           72  checksum of the payload u32
//  16  incarnation u32       44  block size u32       76  checksum of bytes 0 … 75 u32
//  20  state parts u32       48  block bytes u64      80  end
//  24  sequence u64
//
// Checksums are CRC-32 (ISO-HDLC, Boost.CRC's crc_32_type). What is read is not trusted: it is compared, field by field,
// with what the reader expects, before a byte of the payload is used.
//
// Pure functions; any thread.
#pragma once

#include <array>
#include <boost/crc.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "messages/error.h"
#include "messages/model_info.h"

namespace troupe::actors {

inline constexpr std::uint32_t kStateVersion = 2;
inline constexpr std::size_t kStateHeaderBytes = 80;
using StateHeaderBytes = std::array<std::byte, kStateHeaderBytes>;

struct StateHeader {
  SeqId seq;
  std::uint32_t positions = 0;
  std::uint32_t first_block = 0;
  std::uint32_t n_blocks = 0;
  std::uint32_t n_parts = 0;
  std::uint32_t block_size = 0;
  std::uint64_t block_bytes = 0;
  std::uint64_t model = 0;
  std::uint32_t payload_crc = 0;
  std::uint64_t payload_bytes() const { return (std::uint64_t{n_blocks} + n_parts) * block_bytes; }
};

// Which model and which arithmetic the KV is of: equal ids give equal bits (R1).
std::uint64_t model_id(const ModelInfo& model);

using StateCrc = boost::crc_32_type;  // made piece by piece: process_bytes(), then checksum()

StateHeaderBytes encode(const StateHeader& header);
// bad_file: not the header of a state that equals `expected` in everything but the payload's checksum, or not a file of
// so many bytes. Answers the checksum that the payload must have.
Result<std::uint32_t> check_header(std::span<const std::byte> bytes, std::uint64_t file_bytes, const StateHeader& expected);
// Whether the bytes begin as a file of ours does, whatever its version.
bool has_magic(std::span<const std::byte> bytes);

std::string state_file_name(SeqId seq);            // "1-327685.kv"
bool is_state_file_name(const std::string& name);  // such a name, or one with ".part" behind it

}  // namespace troupe::actors
