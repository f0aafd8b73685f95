#include "kernels/cuda/attention_tile.h"
#include "kernels/cuda/families.h"
#include "kernels/cuda/launch.h"

namespace troupe::kernels {

namespace {

// A block per 8 rows of a KV head; row r is query head r % group of token r / group. Rows of one slot that lie side by side
// share each tile that one of them reads.
template <int kWords>
__global__ void prefill_kernel(const AttentionArgs a, const KvCache kv, const BlockTables tables) {
  using Shared = AttentionShared<kWords>;
  TROUPE_SHARED(Shared, s);
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const std::uint32_t group = a.n_heads / kv.n_kv_heads, kv_head = blockIdx.y, n_rows = a.n_tokens * group;
  const std::uint32_t first_row = blockIdx.x * kAttentionWarps, end_row = smaller(first_row + kAttentionWarps, n_rows),
                      r = first_row + warp;
  const bool mine = r < end_row;
  const std::size_t t = mine ? r / group : 0;
  const std::uint32_t head = kv_head * group + (mine ? r % group : 0);
  const StepToken token = a.tokens[t];
  const std::uint32_t my_low = first_position(token.position, a.window), my_high = token.position + 1;
  if (mine) {
    const float* q = a.q + t * a.q_stride + std::size_t{head} * kv.head_dim;
    for (std::uint32_t i = lane; i < kv.head_dim; i += 32) s.q[warp][i] = q[i];
  }
  AttentionRow<kWords> row;
  row.clear();
  for (std::uint32_t begin = first_row, end = begin; begin < end_row; begin = end) {  // the same loops in every thread
    const std::uint32_t slot = a.tokens[begin / group].slot;
    std::uint32_t low = kNone, high = 0;
    for (; end < end_row && a.tokens[end / group].slot == slot; ++end) {
      const std::uint32_t position = a.tokens[end / group].position;
      low = smaller(low, first_position(position, a.window));
      high = larger(high, position + 1);
    }
    if (slot == kNone) continue;
    const bool in_run = mine && r >= begin && r < end;
    for (std::uint32_t piece = low / kAttentionSplit; piece * kAttentionSplit < high; ++piece) {
      const std::uint32_t piece_low = larger(low, piece * kAttentionSplit), piece_high = smaller(high, (piece + 1) * kAttentionSplit);
      AttentionRow<kWords> part;
      part.clear();
      bool any = false;
      for (std::uint32_t base = piece_low / kTile * kTile; base < piece_high; base += kTile) {
        __syncthreads();
        load_tile(s, kv, table_of(tables, slot), a.layer, kv_head, base, piece_low, piece_high);
        __syncthreads();
        const std::uint32_t from = larger(my_low, base), to = smaller(my_high, base + kTile);
        if (!in_run || from >= to) continue;
        attend_tile(part, s, from - base, to - base, kv.head_dim, a.scale);
        any = true;
      }
      if (any) row.merge(part.top, part.sum, part.v);
    }
  }
  if (!mine) return;
  float* out = a.out + (t * a.n_heads + head) * kv.head_dim;
  if (token.slot == kNone) {
    for (std::uint32_t i = lane; i < kv.head_dim; i += 32) out[i] = 0.0f;
    return;
  }
  row.write(out, kv.head_dim, lane);
}

}  // namespace

void launch_attention_prefill(const AttentionArgs& args, const KvCache& kv, const BlockTables& tables, CudaStream stream) {
  const std::size_t rows = std::size_t{args.n_tokens} * (args.n_heads / kv.n_kv_heads);
  with_words(kv.head_dim, [&](auto words) {
    launch(&prefill_kernel<decltype(words)::value>, {divide_up<std::size_t>(rows, kAttentionWarps), kv.n_kv_heads}, 32 * kAttentionWarps,
           stream, args, kv, tables);
  });
}

}  // namespace troupe::kernels
