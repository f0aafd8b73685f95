#include "kernels/host/host_kernels.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/host/argmax.h"
#include "kernels/host/attention.h"
#include "kernels/host/delta_rule.h"
#include "kernels/host/feed.h"
#include "kernels/host/kv_layout.h"
#include "kernels/host/lora.h"
#include "kernels/host/matmul.h"
#include "kernels/host/rmsnorm.h"
#include "kernels/host/rope.h"
#include "kernels/host/rows.h"
#include "kernels/host/sample.h"
#include "kernels/host/silu_mul.h"
#include "kernels/host/thread_pool.h"

namespace troupe::kernels {

namespace {

// Up to so many rows, work of about a microsecond a row is done by the caller alone: waking helpers costs more.
constexpr std::size_t kSerialRows = 3;

class HostKernels final : public Kernels {
 public:
  explicit HostKernels(const HostKernelsOptions& o)
      : options_(o),
        pool_(o.threads),
        matmul_(o.target, o.exact, o.max_rows, o.max_cols, pool_),
        lora_(o.target, o.max_lora_rank, pool_),
        sample_(pool_),
        attention_(kernels::attention(o.target, !o.exact)),
        rms_norm_(kernels::rms_norm(o.target)),
        silu_mul_(kernels::silu_mul(o.target)),
        causal_conv_(kernels::causal_conv(o.target)),
        delta_rule_(kernels::delta_rule(o.target)),
        sigmoid_mul_(kernels::sigmoid_mul(o.target)),
        first_tokens_(o.max_rows),
        scores_stride_(round_up(o.max_context, 16) + o.block_size + 16),
        scores_(pool_.threads() * std::min<std::size_t>(o.max_group, 4) * scores_stride_) {}

  std::size_t kv_bytes(const KvCache& shape) const override { return KvLayout(shape).total * (options_.exact ? 4 : 2); }

  std::size_t kv_block_bytes(const KvCache& shape) const override { return block_piece(shape) * shape.n_layers; }

  void read_block(const KvCache& kv, std::uint32_t block, void* to) override {
    const std::size_t piece = block_piece(kv);
    for (std::uint32_t l = 0; l < kv.n_layers; ++l) std::memcpy(static_cast<std::byte*>(to) + l * piece, block_at(kv, l, block), piece);
  }

  void write_block(const KvCache& kv, std::uint32_t block, const void* from) override {
    const std::size_t piece = block_piece(kv);
    for (std::uint32_t l = 0; l < kv.n_layers; ++l)
      std::memcpy(block_at(kv, l, block), static_cast<const std::byte*>(from) + l * piece, piece);
  }

  void apply_changes(const BlockTables& tables, const TableChange* changes, std::uint32_t n) override {
    kernels::apply_changes(tables, changes, n);
  }

  void feed_resolve(const FeedArgs& args) override { kernels::feed_resolve(args); }

  void embed(const Weight& w, const StepToken* tokens, std::uint32_t n_tokens, float* x) override {
    const UnpackF32 unpack = unpack_f32(w.format, options_.target);
    const std::size_t bytes = row_bytes(w.format, w.cols);
    split(n_tokens,
          [&](std::size_t t) { unpack(static_cast<const std::uint8_t*>(w.data) + tokens[t].id * bytes, w.cols, x + t * w.cols); });
  }

  void rms_norm(const float* x, const float* gain, float* y, std::uint32_t n_rows, std::uint32_t width, float eps) override {
    const std::size_t w = width;
    split(n_rows, [&](std::size_t r) { rms_norm_(x + r * w, gain, y + r * w, w, eps); });
  }

  void norm_heads(float* x, std::size_t stride, const float* gain, std::uint32_t n_rows, std::uint32_t n_heads, std::uint32_t width,
                  float eps) override {
    split(n_rows, [&](std::size_t r) {
      float* head = x + r * stride;
      for (std::uint32_t h = 0; h < n_heads; ++h, head += width) rms_norm_(head, gain, head, width, eps);
    });
  }

  void matmul(std::span<const MatmulJob> jobs, const float* x, std::uint32_t n_rows, std::uint32_t cols) override {
    matmul_.run(jobs, x, n_rows, cols);
  }

  void lora(std::span<const LoraJob> jobs, std::span<const LoraRun> runs, const float* x, std::uint32_t cols) override {
    lora_.run(jobs, runs, x, cols);
  }

  void rope_angles(const StepToken* tokens, std::uint32_t n_tokens, const double* inv_freq, std::uint32_t n_freqs, float* angles) override {
    split(n_tokens, [&](std::size_t t) { kernels::rope_angles(tokens[t].position, inv_freq, n_freqs, angles + t * n_freqs * 2); });
  }

  void rope_store(const RopeArgs& args, const KvCache& kv, const BlockTables& tables) override {
    split(args.n_tokens, [&](std::size_t t) { kernels::rope_store(args, static_cast<std::uint32_t>(t), kv, tables, !options_.exact); });
  }

  void attention(const AttentionArgs& a, const KvCache& kv, const BlockTables& tables) override {
    const KvLayout layout(kv);
    const std::uint32_t group = a.n_heads / kv.n_kv_heads;
    const std::size_t width = static_cast<std::size_t>(a.n_heads) * kv.head_dim;
    const std::size_t element = options_.exact ? 4 : 2;
    pool_.run(static_cast<std::size_t>(a.n_tokens) * kv.n_kv_heads, [&](std::size_t item, unsigned thread) {
      const std::size_t t = item / kv.n_kv_heads;
      const auto h = static_cast<std::uint32_t>(item % kv.n_kv_heads);
      const StepToken& token = a.tokens[t];
      float* out = a.out + t * width + static_cast<std::size_t>(h) * group * kv.head_dim;
      if (token.slot == kNone) {
        std::memset(out, 0, static_cast<std::size_t>(group) * kv.head_dim * sizeof(float));
        return;
      }
      AttentionHead head;
      head.kv = static_cast<const std::uint8_t*>(kv.data) + layout.at(a.layer, 0, h) * element;
      head.block_elements = layout.block;
      head.k_stride = layout.k_stride;
      head.v_stride = layout.v_stride;
      head.v_begin = layout.v_begin;
      head.block_size = kv.block_size;
      head.head_dim = kv.head_dim;
      head.table = tables.entries + static_cast<std::size_t>(token.slot) * tables.blocks_per_slot;
      head.first = a.window != 0 && token.position >= a.window ? token.position + 1 - a.window : 0;
      head.position = token.position;
      head.group = group;
      head.q = a.q + t * a.q_stride + static_cast<std::size_t>(h) * group * kv.head_dim;
      head.out = out;
      head.scale = a.scale;
      head.scores = scores_.data() + thread * std::min<std::size_t>(options_.max_group, 4) * scores_stride_;
      head.scores_stride = scores_stride_;
      attention_(head);
    });
  }

  void causal_conv(const RecurrentArgs& a, const RecurrentStates& states) override {
    constexpr std::uint32_t kPiece = 256;
    const std::uint32_t channels = states.channels(), pieces = (channels + kPiece - 1) / kPiece;
    find_first_tokens(a.rows, a.n_rows);
    split(std::size_t{a.n_rows} * pieces, [&](std::size_t item) {
      const auto r = static_cast<std::uint32_t>(item / pieces), begin = static_cast<std::uint32_t>(item % pieces) * kPiece;
      causal_conv_(a, states, r, first_tokens_[r], begin, std::min(begin + kPiece, channels));
    });
  }

  void delta_gates(float* a, float* b, const float* rate, const float* dt_bias, std::uint32_t n_tokens, std::uint32_t heads) override {
    const std::size_t h = heads;
    split(n_tokens, [&](std::size_t t) { kernels::delta_gates(a + t * h, b + t * h, rate, dt_bias, heads); });
  }

  void delta_rule(const RecurrentArgs& a, const RecurrentStates& states) override {
    const std::uint32_t strips = states.strips(), pieces = states.v_heads * strips;
    find_first_tokens(a.rows, a.n_rows);
    split(std::size_t{a.n_rows} * pieces, [&](std::size_t item) {
      const auto r = static_cast<std::uint32_t>(item / pieces), piece = static_cast<std::uint32_t>(item % pieces);
      delta_rule_(a, states, r, first_tokens_[r], piece / strips, piece % strips);
    });
  }

  void split_heads(const float* from, std::uint32_t n_tokens, std::uint32_t n_heads, std::uint32_t width, float* first, std::size_t stride,
                   float* second) override {
    const std::size_t bytes = width * sizeof(float);
    split(n_tokens, [&](std::size_t t) {
      const float* pair = from + t * n_heads * 2 * width;
      for (std::size_t h = 0; h < n_heads; ++h, pair += 2 * width) {
        std::memcpy(first + t * stride + h * width, pair, bytes);
        std::memcpy(second + (t * n_heads + h) * width, pair + width, bytes);
      }
    });
  }

  void sigmoid_mul(float* x, const float* gate, std::size_t n) override {
    in_pieces(n, [&](std::size_t at, std::size_t count) { sigmoid_mul_(x + at, gate + at, count); });
  }

  void silu_mul(float* gate, const float* up, std::size_t n) override {
    in_pieces(n, [&](std::size_t at, std::size_t count) { silu_mul_(gate + at, up + at, count); });
  }

  void gather_outputs(const StepRow* rows, std::uint32_t n_rows, const float* x, std::uint32_t width, float* out) override {
    std::size_t end = 0;
    for (std::uint32_t r = 0; r < n_rows; ++r) {
      end += rows[r].n_tokens;
      if (rows[r].output == kNone) continue;
      std::memcpy(out + static_cast<std::size_t>(rows[r].output) * width, x + (end - 1) * width, width * sizeof(float));
    }
  }

  void argmax(const StepRow* rows, std::uint32_t n_rows, const float* logits, std::uint32_t vocab, std::uint32_t tag, Cell* cells,
              RowReadback* readback, float* logits_out) override {
    split(n_rows, [&](std::size_t r) {
      const StepRow& row = rows[r];
      if (row.output == kNone) return;
      const float* v = logits + static_cast<std::size_t>(row.output) * vocab;
      if (row.logits_row != kNone) std::memcpy(logits_out + static_cast<std::size_t>(row.logits_row) * vocab, v, vocab * sizeof(float));
      if (cells[r].status != Status::ok || row.sampled != 0) return;
      const std::uint32_t id = masked_argmax(v, vocab, row.mask_a, row.mask_b, options_.target);
      cells[r] = {id == kNone ? 0 : id, id == kNone ? Status::no_token : Status::ok, tag};
      readback[r].id = cells[r].id;
      readback[r].status = cells[r].status;
    });
  }

  void sample(const SampleArgs& args) override { sample_.run(args); }

 private:
  std::size_t element_bytes() const { return options_.exact ? 4 : 2; }
  std::size_t block_piece(const KvCache& shape) const { return KvLayout(shape).block * element_bytes(); }  // of one layer
  std::byte* block_at(const KvCache& kv, std::uint32_t layer, std::uint32_t block) const {
    return static_cast<std::byte*>(kv.data) + KvLayout(kv).at(layer, block, 0) * element_bytes();
  }
  void find_first_tokens(const StepRow* rows, std::uint32_t n_rows) {
    std::size_t token = 0;
    for (std::uint32_t r = 0; r < n_rows; token += rows[r++].n_tokens) first_tokens_[r] = token;
  }
  template <class F>
  void in_pieces(std::size_t n, F&& f) {
    constexpr std::size_t kPiece = 4096;
    split((n + kPiece - 1) / kPiece, [&](std::size_t p) { f(p * kPiece, std::min(kPiece, n - p * kPiece)); });
  }
  template <class F>
  void split(std::size_t n, F&& f) {
    if (n <= kSerialRows) {
      for (std::size_t i = 0; i < n; ++i) f(i);
    } else {
      pool_.run(n, [&f](std::size_t i, unsigned) { f(i); });
    }
  }

  HostKernelsOptions options_;
  ThreadPool pool_;
  Matmul matmul_;
  Lora lora_;
  Sample sample_;
  Attention attention_;
  RmsNorm rms_norm_;
  SiluMul silu_mul_;
  CausalConv causal_conv_;
  DeltaRule delta_rule_;
  SigmoidMul sigmoid_mul_;
  std::vector<std::size_t> first_tokens_;  // by row
  std::size_t scores_stride_;
  std::vector<float> scores_;
};

}  // namespace

std::unique_ptr<Kernels> make_host_kernels(const HostKernelsOptions& options) { return std::make_unique<HostKernels>(options); }

}  // namespace troupe::kernels
