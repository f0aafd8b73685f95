// Where saved states lie, as the spill core sees it: one file per sequence, written front to back under a name that is
// not yet its own, then made whole at once. The real one is PosixStateFiles; tests have one in memory that fails.
//
// One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "actors/spill/state_file.h"
#include "messages/error.h"

namespace troupe::actors {

class StateFiles {
 public:
  virtual ~StateFiles() = default;

  // Begins a file with room for a header, in the place of any that is left of this name.
  virtual Result<void> create(SeqId seq) = 0;
  // Appends to the file that was begun last.
  virtual Result<void> append(SeqId seq, std::span<const std::byte> bytes) = 0;
  // Writes the header in front and gives the file its name: from now on it is whole.
  virtual Result<void> commit(SeqId seq, const StateHeaderBytes& header) = 0;
  // Of a whole file. not_found, io_failed.
  virtual Result<std::uint64_t> size(SeqId seq) = 0;
  // Exactly so many bytes from `offset`; bad_file if they are not there.
  virtual Result<void> read(SeqId seq, std::uint64_t offset, std::span<std::byte> to) = 0;
  // Whole or not; nothing happens if it is not there.
  virtual void remove(SeqId seq) = 0;
};

}  // namespace troupe::actors
