// libFuzzer: any bytes are refused with a reason, or are the header that was expected, byte for byte but for the payload's
// checksum and their own.
#include <cstdlib>
#include <cstring>

#include "actors/spill/state_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe::actors;
  StateHeader expected;
  expected.seq = {1, 65536};
  expected.positions = 10;
  expected.n_blocks = 3;
  expected.block_size = 4;
  expected.block_bytes = 64;
  expected.model = 7;
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto crc = check_header(bytes, kStateHeaderBytes + expected.payload_bytes(), expected);
  if (!crc) {
    if (crc.error().what.empty()) std::abort();
    return 0;
  }
  expected.payload_crc = crc.value();
  const StateHeaderBytes right = encode(expected);
  if (size < right.size() || std::memcmp(right.data(), data, right.size()) != 0) std::abort();
  return 0;
}
