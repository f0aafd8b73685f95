#include "actors/spill/core.h"

#include <fmt/format.h>

namespace troupe::actors {

namespace {

std::byte* memory_of(const StatePiece& p) { return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(p.data)); }

Error out_of_order(const StatePiece& p) {
  return Error{ErrorCode::internal, label(p) + " does not follow the piece before it; please report"};
}

}  // namespace

SpillCore::SpillCore(const SpillConfig& config, const ModelInfo& model, std::shared_ptr<StateFiles> files)
    : config_(config), model_(model_id(model)), block_size_(model.block_size), files_(std::move(files)) {}

SpillCore::~SpillCore() { clear(); }

void SpillCore::clear() {
  while (!files_by_seq_.empty()) remove(SeqId(files_by_seq_.begin()->first));
}

StateHeader SpillCore::header_of(const StatePiece& p) const {
  StateHeader h;
  h.seq = p.seq;
  h.positions = p.positions;
  h.first_block = p.first_block;
  h.n_blocks = p.n_blocks;
  h.n_parts = p.n_parts;
  h.block_size = block_size_;
  h.block_bytes = p.block_bytes;
  h.model = model_;
  return h;
}

void SpillCore::remove(SeqId seq) {
  const auto it = files_by_seq_.find(seq);
  if (it == files_by_seq_.end()) return;
  bytes_ -= it->second.bytes;
  files_by_seq_.erase(it);
  files_->remove(seq);
}

Result<void> SpillCore::write(const StatePiece& p) {
  if (p.begin == 0) {
    const std::uint64_t all = kStateHeaderBytes + header_of(p).payload_bytes();
    if (all > config_.limit_bytes || bytes_ > config_.limit_bytes - all)
      return Error{ErrorCode::overloaded, fmt::format("saving {} needs {} bytes, and {} of {} are taken: raise the limit on spilled bytes",
                                                      label(p.seq), all, bytes_, config_.limit_bytes)};
    File& file = files_by_seq_[p.seq];
    file.bytes = all;
    bytes_ += all;
    TROUPE_TRY(files_->create(p.seq));
  }
  const auto it = files_by_seq_.find(p.seq);
  if (it == files_by_seq_.end() || it->second.whole || it->second.next != p.begin) return out_of_order(p);
  File& file = it->second;
  const std::span<const std::byte> bytes(memory_of(p), p.count * p.block_bytes);
  TROUPE_TRY(files_->append(p.seq, bytes));
  file.crc.process_bytes(bytes.data(), bytes.size());
  file.next += p.count;
  if (!p.last()) return success();
  StateHeader header = header_of(p);
  header.payload_crc = file.crc.checksum();
  TROUPE_TRY(files_->commit(p.seq, encode(header)));
  file.whole = true;
  file.next = 0;
  file.crc.reset();
  return success();
}

Result<void> SpillCore::read(const StatePiece& p) {
  const auto it = files_by_seq_.find(p.seq);
  if (it == files_by_seq_.end() || !it->second.whole)
    return Error{ErrorCode::not_found, "no saved state of " + label(p.seq) + " is there; it is computed again"};
  File& file = it->second;
  if (file.next != p.begin) return out_of_order(p);
  if (p.begin == 0) {
    StateHeaderBytes header;
    TROUPE_TRY(const std::uint64_t size, files_->size(p.seq));
    TROUPE_TRY(files_->read(p.seq, 0, header));
    TROUPE_TRY(file.expected, check_header(header, size, header_of(p)));
  }
  const std::span<std::byte> bytes(memory_of(p), p.count * p.block_bytes);
  TROUPE_TRY(files_->read(p.seq, kStateHeaderBytes + p.begin * p.block_bytes, bytes));
  file.crc.process_bytes(bytes.data(), bytes.size());
  file.next += p.count;
  if (!p.last()) return success();
  if (file.crc.checksum() != file.expected && config_.fault != SpillFault::trust_files)
    return Error{ErrorCode::bad_file,
                 "the saved state of " + label(p.seq) + " has another checksum than it was written with; it is computed again"};
  remove(p.seq);
  return success();
}

void SpillCore::on(const WriteState& m, TimeNs, SpillOutbox& out) {
  StateWritten answer{{}, m.piece.place, m.piece.seq, {}};
  if (auto done = write(m.piece); !done) {
    answer.error = done.error();
    remove(m.piece.seq);
  }
  out.push(std::move(answer));
}

void SpillCore::on(const ReadState& m, TimeNs, SpillOutbox& out) {
  StateRead answer{{}, m.piece.place, m.piece.seq, {}};
  if (auto done = read(m.piece); !done) {
    answer.error = done.error();
    remove(m.piece.seq);
  }
  out.push(std::move(answer));
}

void SpillCore::on(const DropState& m, TimeNs, SpillOutbox&) { remove(m.seq); }

}  // namespace troupe::actors
