// The CUDA kernels, one family per .cu file: each function enqueues on the stream and returns. Pointers are device memory.
// The contracts are those of kernels.h except for what this page says; activations are F32 in memory, are rounded to BF16
// (to nearest even) where a matmul reads them and where keys and values go into the cache, and all sums are F32.
//
// Order of sums (R1), whatever the launch's shape; fma = fused multiply-add:
//   rms_norm, norm_heads  thread i of N (256; norm_heads: 32) adds the squares of elements i, i + N, ... ascending by fma;
//                         then a warp's lanes 16, 8, 4, 2, 1 apart; then warps ascending.
//   matmul                BF16 products in steps of 16 columns, ascending, each one mma onto the F32 sum before it. Rows of a
//                         tile that are not there are zeros, and no sum is split, so every tile shape gives the same bits.
//   lora                  thread i of 128 adds the products of elements i, i + 128, ... of A's row and of x ascending by fma, then
//                         as rms_norm; times scale; then ascending over the ranks by fma; then onto y. All of it in F32.
//   causal_conv           ascending over the taps by fma from 0.
//   delta_rule            thread i of 4 adds the products of elements i, i + 4, ... ascending by fma from 0; then threads 2 apart,
//                         then 1. S decay is a product of its own, and S + k (beta (v - m)) one fma. All of it in F32.
//   attention             positions in pieces of kAttentionSplit from position 0 on, each in tiles of 32 with a running maximum
//                         and sum; pieces are then merged ascending. Decode and prefill share the code.
// Errors of a launch stay in CUDA's last error, which the driver asks for.
// Thread: the one that owns the stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cuda/stream.h"
#include "kernels/kernels.h"

namespace troupe::kernels {

inline constexpr std::uint32_t kAttentionSplit = 256;

// Bytes of the cache: BF16, [layer][block][KV head]{K, V}[position][head_dim]. head_dim is even, and at most 256.
constexpr std::size_t cuda_kv_bytes(const KvCache& kv) {
  return std::size_t{2} * 2 * kv.n_layers * kv.n_blocks * kv.n_kv_heads * kv.block_size * kv.head_dim;
}

// embed.cu
void launch_embed(const Weight& w, const StepToken* tokens, std::uint32_t n_tokens, float* x, CudaStream stream);
void launch_gather_outputs(const StepRow* rows, std::uint32_t n_rows, const float* x, std::uint32_t width, float* out, CudaStream stream);

// rms_norm.cu: n_heads vectors of `width` side by side in each of n_rows rows, which are `stride` apart in x and y.
void launch_rms_norm(const float* x, const float* gain, float* y, std::uint32_t n_rows, std::uint32_t width, float eps, CudaStream stream);
void launch_norm_heads(float* x, std::size_t stride, const float* gain, std::uint32_t n_rows, std::uint32_t n_heads, std::uint32_t width,
                       float eps, CudaStream stream);

// rope.cu
void launch_rope_angles(const StepToken* tokens, std::uint32_t n_tokens, const double* inv_freq, std::uint32_t n_freqs, float* angles,
                        CudaStream stream);
void launch_rope_store(const RopeArgs& args, const KvCache& kv, const BlockTables& tables, CudaStream stream);

// attention_decode.cu: one block per token, KV head and piece. partial: attention_partial_floats of scratch; max_context:
// positions that a token may read.
std::size_t attention_partial_floats(std::uint32_t n_tokens, std::uint32_t n_heads, std::uint32_t head_dim, std::uint32_t max_context);
void launch_attention_decode(const AttentionArgs& args, const KvCache& kv, const BlockTables& tables, std::uint32_t max_context,
                             float* partial, CudaStream stream);
// attention_prefill.cu: neighbouring tokens of one slot share the reads of the cache. The same bits as decode.
void launch_attention_prefill(const AttentionArgs& args, const KvCache& kv, const BlockTables& tables, CudaStream stream);

// kv_block.cu: blocks of all layers, each packed as [layer][KV head]{K, V}[position][head_dim], by one launch. `blocks` is read
// before this returns, at most kBlocksACopy. to and from: device memory, or page-locked memory that the device reaches; at
// multiples of 4.
inline constexpr std::size_t kBlocksACopy = 64;
void launch_read_blocks(const KvCache& kv, std::span<const std::uint32_t> blocks, void* to, CudaStream stream);
void launch_write_blocks(const KvCache& kv, std::span<const std::uint32_t> blocks, const void* from, CudaStream stream);

// silu_mul.cu
void launch_silu_mul(float* gate, const float* up, std::size_t n, CudaStream stream);

// recurrent.cu: as kernels.h has them. states.k_dim: at most kMostKeyElements. A row without state_out, which only fills a step up,
// gets no results and touches no state.
inline constexpr std::uint32_t kMostKeyElements = 256;
void launch_causal_conv(const RecurrentArgs& args, const RecurrentStates& states, CudaStream stream);
void launch_delta_gates(float* a, float* b, const float* rate, const float* dt_bias, std::uint32_t n_tokens, std::uint32_t heads,
                        CudaStream stream);
void launch_delta_rule(const RecurrentArgs& args, const RecurrentStates& states, CudaStream stream);
void launch_split_heads(const float* from, std::uint32_t n_tokens, std::uint32_t n_heads, std::uint32_t width, float* first,
                        std::size_t stride, float* second, CudaStream stream);
void launch_sigmoid_mul(float* x, const float* gate, std::size_t n, CudaStream stream);

// matmul.cu: one job. x lies at a multiple of 16 bytes, the rows of w as rows.h says. Tiles of more rows of x for larger calls; tile_rows
// overrides it (8, 16, 32 or 64; tests).
void launch_matmul(const MatmulJob& job, const float* x, std::uint32_t n_rows, CudaStream stream, std::uint32_t tile_rows = 0);

// gemm_edges.cu: n floats as BF16, to nearest even; and a bias onto rows of y that are `stride` apart.
void launch_round_bf16(const float* x, std::uint16_t* to, std::size_t n, CudaStream stream);
void launch_add_bias(float* y, std::size_t stride, const float* bias, std::uint32_t rows, std::uint32_t n_rows, CudaStream stream);

// lora.cu: two launches for each kLoraJobs jobs and 128 runs. jobs and runs are host memory, read before the call returns (so a
// captured call keeps them); what they point to is the device's. No slot of a run has a rank above max_rank. shrunk:
// lora_scratch_floats of scratch, for the tokens of a step.
inline constexpr std::uint32_t kLoraJobs = 3;  // of a launch
std::size_t lora_scratch_floats(std::uint32_t n_tokens, std::uint32_t max_rank);
void launch_lora(std::span<const LoraJob> jobs, std::span<const LoraRun> runs, const float* x, std::uint32_t cols, std::uint32_t max_rank,
                 float* shrunk, CudaStream stream);

// feed_resolve.cu
void launch_apply_changes(const BlockTables& tables, const TableChange* changes, std::uint32_t n, CudaStream stream);
void launch_feed_resolve(const FeedArgs& args, CudaStream stream);

// argmax_feed.cu. threads: of a block, 32 to 1024, a power of 2; the answer does not depend on it.
void launch_argmax_feed(const StepRow* rows, std::uint32_t n_rows, const float* logits, std::uint32_t vocab, std::uint32_t tag, Cell* cells,
                        RowReadback* readback, float* logits_out, CudaStream stream, unsigned threads = 1024);

// sample_feed.cu. work, counts: [args.n][vocab] of scratch, counts zeroed before the first call and left so. threads as above.
void launch_sample_feed(const SampleArgs& args, float* work, std::uint32_t* counts, CudaStream stream, unsigned threads = 1024);

}  // namespace troupe::kernels
