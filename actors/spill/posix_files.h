// Saved states as files SEQ.kv in one folder, which is this process's alone while it is open (a lock on the folder).
// Files that an earlier process left are removed when it is opened: those with such a name and our first bytes, no other.
//
// One thread at a time.
#pragma once

#include <memory>
#include <string>

#include "actors/spill/state_files.h"

namespace troupe::actors {

class PosixStateFiles final : public StateFiles {
 public:
  // Makes the folder if its parent is there. io_failed: no such folder, or it may not be used; overloaded: another
  // process, or another runtime of this one, has it.
  static Result<std::shared_ptr<PosixStateFiles>> open(const std::string& folder);
  ~PosixStateFiles() override;

  Result<void> create(SeqId seq) override;
  Result<void> append(SeqId seq, std::span<const std::byte> bytes) override;
  Result<void> commit(SeqId seq, const StateHeaderBytes& header) override;
  Result<std::uint64_t> size(SeqId seq) override;
  Result<void> read(SeqId seq, std::uint64_t offset, std::span<std::byte> to) override;
  void remove(SeqId seq) override;

  std::size_t leftovers() const { return leftovers_; }  // removed at the start

 private:
  PosixStateFiles(std::string folder, int folder_fd) : folder_(std::move(folder)), folder_fd_(folder_fd) {}
  void remove_leftovers();
  Result<int> opened(SeqId seq, bool whole);
  void close_file();
  Error failed(const char* what, const std::string& name) const;

  const std::string folder_;
  const int folder_fd_;
  int file_ = -1;  // open, the one that was used last
  SeqId open_seq_;
  bool open_whole_ = false;
  std::size_t leftovers_ = 0;
};

}  // namespace troupe::actors
