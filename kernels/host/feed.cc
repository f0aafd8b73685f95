#include "kernels/host/feed.h"

namespace troupe::kernels {

namespace {

// Whether every position that a row of positions [begin, end) reads or writes has a block inside the cache.
bool covered(const FeedArgs& a, std::uint32_t slot, std::uint64_t begin, std::uint64_t end) {
  if (slot >= a.tables.n_slots) return false;
  const std::uint64_t blocks = (end + a.block_size - 1) / a.block_size;
  if (blocks > a.tables.blocks_per_slot) return false;
  const std::uint32_t* table = a.tables.entries + static_cast<std::size_t>(slot) * a.tables.blocks_per_slot;
  const std::uint64_t first = a.window != 0 && begin >= a.window ? begin + 1 - a.window : 0;
  for (std::uint64_t b = first / a.block_size; b < blocks; ++b) {
    if (table[b] == 0 || table[b] > a.n_blocks) return false;
  }
  return true;
}

}  // namespace

void apply_changes(const BlockTables& tables, const TableChange* changes, std::uint32_t n) {
  for (std::uint32_t i = 0; i < n; ++i) {
    const TableChange& c = changes[i];
    if (c.slot >= tables.n_slots || c.index >= tables.blocks_per_slot) continue;
    tables.entries[static_cast<std::size_t>(c.slot) * tables.blocks_per_slot + c.index] = c.block + 1;
  }
}

void feed_resolve(const FeedArgs& a) {
  StepToken* token = a.tokens;
  for (std::uint32_t r = 0; r < a.n_rows; ++r) {
    const StepRow& row = a.rows[r];
    Status status = Status::ok;
    const bool has_kv = covered(a, row.slot, row.position, static_cast<std::uint64_t>(row.position) + row.n_tokens);
    if (!has_kv) status = Status::poisoned;
    std::uint32_t id = 0;
    for (std::uint32_t i = 0; i < row.n_tokens; ++i, ++token) {
      if (row.fed != 0) {
        const Cell cell = a.cell_arrays[row.feed_cells][row.index];
        id = 0;
        if (cell.tag != row.feed_tag) {
          status = Status::stale_feed;
        } else if (cell.status != Status::ok) {
          status = Status::poisoned;
        } else {
          id = cell.id;
        }
      } else {
        id = a.ids[row.index + i];
      }
      if (id >= a.vocab) {
        id = 0;
        status = Status::poisoned;
      }
      *token = {id, has_kv ? row.slot : kNone, row.position + i};
      if (a.history != nullptr && has_kv && token->position < a.history_stride) {
        a.history[std::size_t{row.slot} * a.history_stride + token->position] = id;
      }
    }
    const bool chooses = row.output != kNone || status != Status::ok;
    a.cells[r] = {0, chooses ? status : Status::no_token, a.tag};
    a.readback[r] = {id, 0, status, a.tag};
  }
}

}  // namespace troupe::kernels
