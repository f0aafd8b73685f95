// The spill actor: writes the state of preempted sequences to files and reads it back, piece by piece, and knows which
// files there are. It never touches a device: what it writes and reads is page-locked memory that is its own from a
// message to its answer.
//
// Invariants
//   - the bytes of all files, whole or not, are at most `limit_bytes`: what would pass it is answered overloaded;
//   - one file per sequence; it is removed when it was read, when reading or writing it failed, when it is dropped, and
//     with the core;
//   - a file's contents are used only if header, length and checksum are what was written (state_file.h).
//
// Deterministic but for its files. One thread at a time (the spill actor's own).
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "actors/outbox.h"
#include "actors/spill/state_files.h"
#include "messages/protocol.h"

namespace troupe::actors {

// Switches that break one rule each, for negative controls only.
enum class SpillFault : std::uint8_t {
  none,
  trust_files,  // R1: a checksum that does not match is no error
};

struct SpillConfig {
  std::uint64_t limit_bytes = std::uint64_t{4} << 30;
  SpillFault fault = SpillFault::none;
};

using SpillOutbox = Outbox<StateWritten, StateRead>;

class SpillCore {
 public:
  SpillCore(const SpillConfig& config, const ModelInfo& model, std::shared_ptr<StateFiles> files);
  ~SpillCore();

  void on(const WriteState& m, TimeNs now, SpillOutbox& out);
  void on(const ReadState& m, TimeNs now, SpillOutbox& out);
  void on(const DropState& m, TimeNs now, SpillOutbox& out);

  // Removes every file.
  void clear();

  std::size_t files() const { return files_by_seq_.size(); }  // whole or being written
  std::uint64_t bytes() const { return bytes_; }

 private:
  struct File {
    std::uint64_t bytes = 0;
    StateCrc crc;                // of the payload, as far as it was written or read
    std::uint32_t expected = 0;  // reading: what the header says
    std::uint32_t next = 0;      // the block or part that comes next
    bool whole = false;
  };
  StateHeader header_of(const StatePiece& piece) const;
  Result<void> write(const StatePiece& piece);
  Result<void> read(const StatePiece& piece);
  void remove(SeqId seq);

  const SpillConfig config_;
  const std::uint64_t model_;
  const std::uint32_t block_size_;
  std::shared_ptr<StateFiles> files_;
  std::map<SeqId, File> files_by_seq_;
  std::uint64_t bytes_ = 0;
};

}  // namespace troupe::actors
