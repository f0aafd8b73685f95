#include "kernels/cuda/families.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/numbers.h"

namespace troupe::kernels {

namespace {

constexpr unsigned kThreads = 128;

// In order: of several changes of one entry the last is written, by its thread alone.
__global__ void apply_changes_kernel(const BlockTables tables, const TableChange* changes, std::uint32_t n) {
  const std::uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= n) return;
  const TableChange c = changes[i];
  if (c.slot >= tables.n_slots || c.index >= tables.blocks_per_slot) return;
  for (std::uint32_t j = i + 1; j < n; ++j) {
    if (changes[j].slot == c.slot && changes[j].index == c.index) return;
  }
  tables.entries[static_cast<std::size_t>(c.slot) * tables.blocks_per_slot + c.index] = c.block + 1;
}

// A block per row.
__global__ void feed_resolve_kernel(const FeedArgs a) {
  using Sums = std::uint32_t[kThreads / 32];
  TROUPE_SHARED(Sums, of_warp);
  TROUPE_SHARED(std::uint32_t, input);
  const std::uint32_t r = blockIdx.x, thread = threadIdx.x;
  const StepRow row = a.rows[r];

  std::uint32_t at = 0;  // of the row's first token: the tokens of the rows before it
  for (std::uint32_t i = thread; i < r; i += kThreads) at += a.rows[i].n_tokens;
  at = warp_sum(at);
  if (thread % 32 == 0) of_warp[thread / 32] = at;
  if (thread == 0) input = 0;

  // Whether every position that the row reads or writes has a block inside the cache.
  const std::uint64_t end = std::uint64_t{row.position} + row.n_tokens, blocks = (end + a.block_size - 1) / a.block_size;
  bool missing = row.slot >= a.tables.n_slots || blocks > a.tables.blocks_per_slot;
  if (!missing) {
    const std::uint32_t* table = a.tables.entries + static_cast<std::size_t>(row.slot) * a.tables.blocks_per_slot;
    const std::uint32_t first = a.window != 0 && row.position >= a.window ? row.position + 1 - a.window : 0;
    for (std::uint64_t b = first / a.block_size + thread; b < blocks; b += kThreads) {
      missing = missing || table[b] == 0 || table[b] > a.n_blocks;
    }
  }
  const bool has_kv = __syncthreads_or(missing) == 0;
  at = 0;
  for (unsigned w = 0; w < kThreads / 32; ++w) at += of_warp[w];

  Cell cell;
  if (row.fed != 0) cell = a.cell_arrays[row.feed_cells][row.index];
  const bool stale = row.fed != 0 && cell.tag != row.feed_tag;
  bool bad = !has_kv || (row.fed != 0 && cell.status != Status::ok);
  for (std::uint32_t i = thread; i < row.n_tokens; i += kThreads) {
    std::uint32_t id = 0;
    if (row.fed == 0) {
      id = a.ids[row.index + i];
    } else if (!stale && cell.status == Status::ok) {
      id = cell.id;
    }
    if (id >= a.vocab) {
      id = 0;
      bad = true;
    }
    a.tokens[at + i] = {id, has_kv ? row.slot : kNone, row.position + i};
    if (a.history != nullptr && has_kv && row.position + i < a.history_stride) {
      a.history[std::size_t{row.slot} * a.history_stride + row.position + i] = id;
    }
    if (i + 1 == row.n_tokens) input = id;
  }
  bad = __syncthreads_or(bad) != 0;
  if (thread != 0) return;
  const Status status = stale ? Status::stale_feed : bad ? Status::poisoned : Status::ok;
  const bool chooses = row.output != kNone || status != Status::ok;
  a.cells[r] = {0, chooses ? status : Status::no_token, a.tag};
  a.readback[r] = {input, 0, status, a.tag};
}

}  // namespace

void launch_apply_changes(const BlockTables& tables, const TableChange* changes, std::uint32_t n, CudaStream stream) {
  launch(&apply_changes_kernel, {divide_up(n, kThreads)}, kThreads, stream, tables, changes, n);
}

void launch_feed_resolve(const FeedArgs& args, CudaStream stream) { launch(&feed_resolve_kernel, {args.n_rows}, kThreads, stream, args); }

}  // namespace troupe::kernels
