// Saved states in memory, in the place of a folder: what the simulator's spill actor writes to. Writes and reads fail,
// and what was written is damaged, when the options say so.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "actors/spill/state_files.h"

namespace troupe::sim {

struct SimFilesOptions {
  // Faults, by the count of calls of that kind, from 1.
  std::set<std::uint64_t> write_errors;  // append or commit
  std::set<std::uint64_t> read_errors;
  std::set<std::uint64_t> damages;      // the file that is made whole by that commit has bits flipped
  std::set<std::uint64_t> truncations;  // or lacks its last byte
  std::uint64_t disk_bytes = ~std::uint64_t{0};
};

class SimFiles final : public actors::StateFiles {
 public:
  explicit SimFiles(const SimFilesOptions& options) : options_(options) {}

  Result<void> create(SeqId seq) override {
    files_[seq] = std::vector<std::byte>(actors::kStateHeaderBytes);
    return success();
  }
  Result<void> append(SeqId seq, std::span<const std::byte> bytes) override {
    TROUPE_TRY(write_fault());
    auto& file = files_.at(seq);
    std::uint64_t all = bytes.size();
    for (const auto& [other, content] : files_) all += content.size();
    if (all > options_.disk_bytes) {
      ++faults_.full;
      return Error{ErrorCode::io_failed, "no space left on the device (injected)"};
    }
    file.insert(file.end(), bytes.begin(), bytes.end());
    return success();
  }
  Result<void> commit(SeqId seq, const actors::StateHeaderBytes& header) override {
    TROUPE_TRY(write_fault());
    auto& file = files_.at(seq);
    std::copy(header.begin(), header.end(), file.begin());
    ++commits_;
    if (options_.damages.count(commits_) > 0) flip(file), ++faults_.damaged;
    if (options_.truncations.count(commits_) > 0) file.pop_back(), ++faults_.damaged;
    return success();
  }
  Result<std::uint64_t> size(SeqId seq) override { return files_.at(seq).size(); }
  Result<void> read(SeqId seq, std::uint64_t offset, std::span<std::byte> to) override {
    if (options_.read_errors.count(++reads_) > 0) {
      ++faults_.read;
      return Error{ErrorCode::io_failed, "the file could not be read (injected)"};
    }
    const auto& file = files_.at(seq);
    if (offset + to.size() > file.size()) return Error{ErrorCode::bad_file, "the file ends too early"};
    std::copy(file.begin() + static_cast<std::ptrdiff_t>(offset), file.begin() + static_cast<std::ptrdiff_t>(offset + to.size()),
              to.begin());
    return success();
  }
  void remove(SeqId seq) override { files_.erase(seq); }

  std::size_t count() const { return files_.size(); }
  std::map<SeqId, std::vector<std::byte>>& files() { return files_; }
  struct Faults {
    std::uint64_t write = 0, full = 0, read = 0, damaged = 0;
  };
  const Faults& faults() const { return faults_; }

 private:
  // A bit of the header, or one of every state that follows.
  void flip(std::vector<std::byte>& file) const {
    if (commits_ % 4 == 0) file[commits_ * 7919 % actors::kStateHeaderBytes] ^= std::byte{4};
    for (std::size_t at = actors::kStateHeaderBytes; commits_ % 4 != 0 && at < file.size(); at += 8) file[at] ^= std::byte{4};
  }
  Result<void> write_fault() {
    if (options_.write_errors.count(++writes_) == 0) return success();
    ++faults_.write;
    return Error{ErrorCode::io_failed, "the file could not be written (injected)"};
  }

  const SimFilesOptions options_;
  std::map<SeqId, std::vector<std::byte>> files_;
  std::uint64_t writes_ = 0, commits_ = 0, reads_ = 0;
  Faults faults_;
};

}  // namespace troupe::sim
