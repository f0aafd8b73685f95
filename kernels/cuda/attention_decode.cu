#include "kernels/cuda/attention_tile.h"
#include "kernels/cuda/families.h"
#include "kernels/cuda/launch.h"

namespace troupe::kernels {

namespace {

// partial: [token][head][piece]{top, sum, v[head_dim]}
__device__ inline float* partial_of(float* partial, std::size_t t, std::uint32_t n_heads, std::uint32_t head, std::uint32_t n_pieces,
                                    std::uint32_t piece, std::uint32_t head_dim) {
  return partial + ((t * n_heads + head) * n_pieces + piece) * (head_dim + 2);
}

// A block per token, KV head (and 8 of its query heads), and piece.
template <int kWords>
__global__ void decode_kernel(const AttentionArgs a, const KvCache kv, const BlockTables tables, std::uint32_t n_pieces, float* partial) {
  using Shared = AttentionShared<kWords>;
  TROUPE_SHARED(Shared, s);
  const std::size_t t = blockIdx.x;
  const StepToken token = a.tokens[t];
  if (token.slot == kNone) return;
  const std::uint32_t piece = blockIdx.z;
  const std::uint32_t low = larger(first_position(token.position, a.window), piece * kAttentionSplit);
  const std::uint32_t high = smaller(token.position + 1, (piece + 1) * kAttentionSplit);
  if (low >= high) return;
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const std::uint32_t group = a.n_heads / kv.n_kv_heads, warps = blockDim.x / 32, parts = (group + warps - 1) / warps;
  const std::uint32_t kv_head = blockIdx.y / parts, in_group = blockIdx.y % parts * warps + warp, head = kv_head * group + in_group;
  const bool mine = in_group < group;
  if (mine) {
    const float* q = a.q + t * a.q_stride + std::size_t{head} * kv.head_dim;
    for (std::uint32_t i = lane; i < kv.head_dim; i += 32) s.q[warp][i] = q[i];
  }
  AttentionRow<kWords> row;
  row.clear();
  for (std::uint32_t base = low / kTile * kTile; base < high; base += kTile) {
    __syncthreads();
    load_tile(s, kv, table_of(tables, token.slot), a.layer, kv_head, base, low, high);
    __syncthreads();
    if (mine) attend_tile(row, s, larger(low, base) - base, smaller(high - base, kTile), kv.head_dim, a.scale);
  }
  if (!mine) return;
  float* out = partial_of(partial, t, a.n_heads, head, n_pieces, piece, kv.head_dim);
  if (lane == 0) {
    out[0] = row.top;
    out[1] = row.sum;
  }
  for (int i = 0; i < kWords; ++i) {
    const std::uint32_t at = 2 * (lane + 32 * i);
    if (at >= kv.head_dim) break;
    out[2 + at] = row.v[2 * i];
    out[2 + at + 1] = row.v[2 * i + 1];
  }
}

// A warp per token and head: its pieces, ascending.
template <int kWords>
__global__ void merge_kernel(const AttentionArgs a, std::uint32_t head_dim, std::uint32_t n_pieces, float* partial) {
  const std::size_t t = blockIdx.x;
  const std::uint32_t head = blockIdx.y;
  const StepToken token = a.tokens[t];
  float* out = a.out + (t * a.n_heads + head) * head_dim;
  if (token.slot == kNone) {
    for (std::uint32_t i = threadIdx.x; i < head_dim; i += 32) out[i] = 0.0f;
    return;
  }
  AttentionRow<kWords> row;
  row.clear();
  const std::uint32_t last = token.position / kAttentionSplit;
  for (std::uint32_t piece = first_position(token.position, a.window) / kAttentionSplit; piece <= last; ++piece) {
    const float* p = partial_of(partial, t, a.n_heads, head, n_pieces, piece, head_dim);
    float v[2 * kWords] = {};
    for (int i = 0; i < kWords; ++i) {
      const std::uint32_t at = 2 * (threadIdx.x + 32 * i);
      if (at >= head_dim) break;
      v[2 * i] = p[2 + at];
      v[2 * i + 1] = p[2 + at + 1];
    }
    row.merge(p[0], p[1], v);
  }
  row.write(out, head_dim, threadIdx.x);
}

}  // namespace

std::size_t attention_partial_floats(std::uint32_t n_tokens, std::uint32_t n_heads, std::uint32_t head_dim, std::uint32_t max_context) {
  return std::size_t{n_tokens} * n_heads * divide_up(max_context, kAttentionSplit) * (head_dim + 2);
}

void launch_attention_decode(const AttentionArgs& args, const KvCache& kv, const BlockTables& tables, std::uint32_t max_context,
                             float* partial, CudaStream stream) {
  const std::uint32_t group = args.n_heads / kv.n_kv_heads, warps = group < kAttentionWarps ? group : kAttentionWarps;
  const std::uint32_t n_pieces = divide_up(max_context, kAttentionSplit);
  with_words(kv.head_dim, [&](auto words) {
    constexpr int kWords = decltype(words)::value;
    launch(&decode_kernel<kWords>, {args.n_tokens, std::size_t{kv.n_kv_heads} * divide_up(group, warps), n_pieces}, 32 * warps, stream,
           args, kv, tables, n_pieces, partial);
    launch(&merge_kernel<kWords>, {args.n_tokens, args.n_heads}, 32, stream, args, kv.head_dim, n_pieces, partial);
  });
}

}  // namespace troupe::kernels
