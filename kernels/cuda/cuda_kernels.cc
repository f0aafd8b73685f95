#include "kernels/cuda/cuda_kernels.h"

#include <utility>

#include "kernels/cuda/families.h"

namespace troupe::kernels {

namespace {

class CudaKernels final : public Kernels {
 public:
  explicit CudaKernels(const CudaKernelsOptions& options) : o_(options) {}

  std::size_t kv_bytes(const KvCache& shape) const override { return cuda_kv_bytes(shape); }

  std::size_t kv_block_bytes(const KvCache& shape) const override {
    return shape.n_blocks == 0 ? 0 : cuda_kv_bytes(shape) / shape.n_blocks;
  }

  void read_block(const KvCache& kv, std::uint32_t block, void* to) override { launch_read_blocks(kv, {&block, 1}, to, o_.stream); }

  void write_block(const KvCache& kv, std::uint32_t block, const void* from) override {
    launch_write_blocks(kv, {&block, 1}, from, o_.stream);
  }

  void apply_changes(const BlockTables& tables, const TableChange* changes, std::uint32_t n) override {
    launch_apply_changes(tables, changes, n, o_.stream);
  }

  void feed_resolve(const FeedArgs& args) override { launch_feed_resolve(args, o_.stream); }

  void embed(const Weight& w, const StepToken* tokens, std::uint32_t n_tokens, float* x) override {
    launch_embed(w, tokens, n_tokens, x, o_.stream);
  }

  void rms_norm(const float* x, const float* gain, float* y, std::uint32_t n_rows, std::uint32_t width, float eps) override {
    launch_rms_norm(x, gain, y, n_rows, width, eps, o_.stream);
  }

  void norm_heads(float* x, std::size_t stride, const float* gain, std::uint32_t n_rows, std::uint32_t n_heads, std::uint32_t width,
                  float eps) override {
    launch_norm_heads(x, stride, gain, n_rows, n_heads, width, eps, o_.stream);
  }

  void matmul(std::span<const MatmulJob> jobs, const float* x, std::uint32_t n_rows, std::uint32_t cols) override {
    bool rounded = false;
    for (const MatmulJob& job : jobs) {
      if (o_.cublaslt == nullptr || job.w.format != Format::bf16) {
        launch_matmul(job, x, n_rows, o_.stream);
        continue;
      }
      if (!std::exchange(rounded, true)) launch_round_bf16(x, o_.rounded, std::size_t{n_rows} * cols, o_.stream);
      o_.cublaslt->multiply({job.w.data, job.w.rows, job.w.cols, o_.rounded, n_rows, job.y, job.stride, job.add}, o_.stream);
      if (job.bias != nullptr) launch_add_bias(job.y, job.stride, job.bias, job.w.rows, n_rows, o_.stream);
    }
  }

  void lora(std::span<const LoraJob> jobs, std::span<const LoraRun> runs, const float* x, std::uint32_t cols) override {
    launch_lora(jobs, runs, x, cols, o_.max_lora_rank, o_.lora_shrunk, o_.stream);
  }

  void rope_angles(const StepToken* tokens, std::uint32_t n_tokens, const double* inv_freq, std::uint32_t n_freqs, float* angles) override {
    launch_rope_angles(tokens, n_tokens, inv_freq, n_freqs, angles, o_.stream);
  }

  void rope_store(const RopeArgs& args, const KvCache& kv, const BlockTables& tables) override {
    launch_rope_store(args, kv, tables, o_.stream);
  }

  void attention(const AttentionArgs& args, const KvCache& kv, const BlockTables& tables) override {
    if (args.n_tokens <= o_.max_decode_tokens) {
      launch_attention_decode(args, kv, tables, o_.max_context, o_.partial, o_.stream);
    } else {
      launch_attention_prefill(args, kv, tables, o_.stream);
    }
  }

  void causal_conv(const RecurrentArgs& args, const RecurrentStates& states) override { launch_causal_conv(args, states, o_.stream); }

  void delta_gates(float* a, float* b, const float* rate, const float* dt_bias, std::uint32_t n_tokens, std::uint32_t heads) override {
    launch_delta_gates(a, b, rate, dt_bias, n_tokens, heads, o_.stream);
  }

  void delta_rule(const RecurrentArgs& args, const RecurrentStates& states) override { launch_delta_rule(args, states, o_.stream); }

  void split_heads(const float* from, std::uint32_t n_tokens, std::uint32_t n_heads, std::uint32_t width, float* first, std::size_t stride,
                   float* second) override {
    launch_split_heads(from, n_tokens, n_heads, width, first, stride, second, o_.stream);
  }

  void sigmoid_mul(float* x, const float* gate, std::size_t n) override { launch_sigmoid_mul(x, gate, n, o_.stream); }

  void silu_mul(float* gate, const float* up, std::size_t n) override { launch_silu_mul(gate, up, n, o_.stream); }

  void gather_outputs(const StepRow* rows, std::uint32_t n_rows, const float* x, std::uint32_t width, float* out) override {
    launch_gather_outputs(rows, n_rows, x, width, out, o_.stream);
  }

  void argmax(const StepRow* rows, std::uint32_t n_rows, const float* logits, std::uint32_t vocab, std::uint32_t tag, Cell* cells,
              RowReadback* readback, float* logits_out) override {
    launch_argmax_feed(rows, n_rows, logits, vocab, tag, cells, readback, logits_out, o_.stream);
  }

  void sample(const SampleArgs& args) override { launch_sample_feed(args, o_.sample_work, o_.sample_counts, o_.stream); }

 private:
  CudaKernelsOptions o_;
};

}  // namespace

std::unique_ptr<Kernels> make_cuda_kernels(const CudaKernelsOptions& options) { return std::make_unique<CudaKernels>(options); }

}  // namespace troupe::kernels
