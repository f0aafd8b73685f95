#include "actors/trace/stand_ins.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace troupe::actors::trace {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;  // of one piece
constexpr std::uint64_t kMostLogits = std::uint64_t{1} << 26;
constexpr float kChosen = 1e20f;  // beyond what penalties and biases change; far enough below infinity to be divided by a temperature

}  // namespace

void StandInFiles::expect(const Error& answer) {
  failure_ = answer.code == ErrorCode::io_failed || answer.code == ErrorCode::bad_file ? answer : Error{};
}

Result<void> StandInFiles::outside() {
  if (failure_.code == ErrorCode::none) return success();
  return std::exchange(failure_, Error{});
}

Result<StandInFiles::File*> StandInFiles::find(SeqId seq) {
  TROUPE_TRY(outside());
  const auto it = files_.find(seq);
  if (it == files_.end()) return Error{ErrorCode::io_failed, "the replay has no file of " + label(seq)};
  return &it->second;
}

Result<void> StandInFiles::create(SeqId seq) {
  TROUPE_TRY(outside());
  files_[seq] = {};
  return success();
}

Result<void> StandInFiles::append(SeqId seq, std::span<const std::byte> bytes) {
  TROUPE_TRY(File* const file, find(seq));
  file->bytes += bytes.size();
  return success();
}

Result<void> StandInFiles::commit(SeqId seq, const StateHeaderBytes& header) {
  TROUPE_TRY(File* const file, find(seq));
  file->header = header;
  return success();
}

Result<std::uint64_t> StandInFiles::size(SeqId seq) {
  TROUPE_TRY(const File* const file, find(seq));
  return file->bytes;
}

// What is read back is zeros already: StandInMemory has lent them.
Result<void> StandInFiles::read(SeqId seq, std::uint64_t offset, std::span<std::byte> to) {
  TROUPE_TRY(const File* const file, find(seq));
  if (offset == 0) std::copy_n(file->header.begin(), std::min(to.size(), file->header.size()), to.begin());
  return success();
}

void StandInFiles::remove(SeqId seq) { files_.erase(seq); }

bool StandInMemory::lend(StatePiece& piece) {
  if (piece.block_bytes > kMostBytes || piece.count * piece.block_bytes > kMostBytes || piece.n_blocks > kMostBytes ||
      piece.n_parts > kMostBytes)
    return false;
  const std::size_t bytes = piece.count * piece.block_bytes;
  if (zeros_.size() < bytes) zeros_.resize(bytes);
  piece.data = reinterpret_cast<std::uintptr_t>(zeros_.data());
  return true;
}

bool StandInLogits::lend(SampleBatch& batch, const SampledBatch* answer, std::uint32_t vocab_size) {
  LogitsView& view = batch.logits;
  if (view.n_rows == 0 || view.vocab != vocab_size) return true;  // the core refuses it
  const std::uint64_t n = std::uint64_t{view.n_rows} * vocab_size;
  if (n > kMostLogits) return false;
  rows_.assign(n, 0.0f);
  view.data = rows_.data();
  for (std::size_t i = 0; answer != nullptr && i < std::min(batch.rows.size(), answer->rows.size()); ++i) {
    const SampledRow& wanted = answer->rows[i];
    if (batch.rows[i].logits_row >= view.n_rows) continue;
    float* row = rows_.data() + std::size_t{batch.rows[i].logits_row} * vocab_size;
    if (wanted.status == CellStatus::no_token) std::fill_n(row, vocab_size, std::numeric_limits<float>::quiet_NaN());
    if (wanted.status == CellStatus::ok && wanted.id < vocab_size) row[wanted.id] = kChosen;
  }
  return true;
}

bool same_choices(const SampledBatch& a, const SampledBatch& b) {
  return a.ticket == b.ticket && std::equal(a.rows.begin(), a.rows.end(), b.rows.begin(), b.rows.end(), [](const auto& x, const auto& y) {
           return x.request == y.request && x.status == y.status && x.best_begin == y.best_begin && x.best_size == y.best_size &&
                  (x.status != CellStatus::ok || x.id == y.id);
         });
}

}  // namespace troupe::actors::trace
