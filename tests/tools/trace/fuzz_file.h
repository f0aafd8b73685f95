// Recordings that a fuzzer's bytes are put into: a fuzzer does not find checksums.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "actors/trace/format.h"

namespace troupe::tools {

// The beginning of a file of a small runtime.
inline std::vector<std::uint8_t> fuzz_file_start() {
  actors::trace::CoreConfigs c;
  c.device.ring_slots = 3;
  c.model.context_length = 64;
  c.model.kv_blocks = 16;
  c.model.n_slots = 4;
  c.model.eos_ids = {2};
  c.model.vocab_size = 32;
  return encode_file_start(actors::trace::make_header(c, false));
}

// A header of these bytes, with the right checksum.
inline std::vector<std::uint8_t> fuzz_header(const std::uint8_t* data, std::size_t size) {
  using namespace actors::trace;
  std::vector<std::uint8_t> file(kFilePrefix);
  std::copy(kFileMagic, kFileMagic + sizeof kFileMagic, file.begin());
  put_le(file.data() + 8, kFileVersion);
  put_le(file.data() + 12, crc32c(data, size));
  put_le(file.data() + 16, static_cast<std::uint32_t>(size));
  file.insert(file.end(), data, data + size);
  return file;
}

// A block of `n` records that are these bytes, with the right checksum.
inline std::vector<std::uint8_t> fuzz_block(std::uint8_t n, const std::uint8_t* data, std::size_t size) {
  using namespace actors::trace;
  std::vector<std::uint8_t> block(kBlockPrefix);
  put_le(block.data(), kBlockMagic);
  put_le(block.data() + 8, static_cast<std::uint32_t>(size));
  put_le(block.data() + 12, std::uint32_t{n});
  block.insert(block.end(), data, data + size);
  put_le(block.data() + 4, crc32c(block.data() + 8, block.size() - 8));
  return block;
}

}  // namespace troupe::tools
