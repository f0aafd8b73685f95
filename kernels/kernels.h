// The interface of kernels over which every forward pass is written once. kernels/host implements it with SIMD and
// runs each call before it returns; a CUDA implementation enqueues each call on its stream. Nothing of messages/ is
// included here, so that .cu files can include this header.
//
// Every pointer is memory of the device (on the host: ordinary memory), valid until the step has settled. Arrays are
// row-major and dense; F32 unless said otherwise.
//
// Order of sums (R1). The bits of a result depend on the row it belongs to and on nothing else: not on how many rows
// a call has, where the row stands, or how many threads share the work. So each operation names its one order:
//   lanes16(v)  = 16 partial sums, element i into lane i % 16, ascending i, each term one multiply and one add
//                 (no fused multiply-add), then lane j += lane j+8, j+4, j+2, j+1.
//   blocks32    = ascending over blocks of 32 elements: sum += float(exact integer sum of the block's products) *
//                 (scale_w[b] * scale_x[b]); formats with a minimum have a second sum, low += min_w[b] * (scale_x[b] *
//                 sum of x's codes); sum + low at the end. Q6_K, which has a scale for each 16 elements, adds its
//                 blocks' halves one after the other, in the same way.
// Threads: one call at a time, from the thread (host) or the stream (CUDA) that owns the instance.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/host_device.h"

namespace troupe::kernels {

inline constexpr std::uint32_t kNone = 0xFFFFFFFFu;

// How weights are stored; names and block formats are ggml's.
enum class Format : std::uint8_t { f32, f16, bf16, q8_0, q4_0, q4_1, q4_k, q6_k };

const char* name(Format format);                         // "Q4_1"
std::size_t row_bytes(Format format, std::size_t cols);  // cols is a multiple of 32, and of block_elements(format)
std::size_t block_elements(Format format);               // elements that are stored together: 1, 32 or 256

// A matrix as stored: rows x cols, each row contiguous. y = W x.
struct Weight {
  const void* data = nullptr;
  Format format = Format::f32;
  std::uint32_t rows = 0;
  std::uint32_t cols = 0;
};

// Same values as troupe::CellStatus (the model asserts it).
enum class Status : std::uint32_t { ok, no_token, stale_feed, poisoned };

// What a row of a step leaves for rows that are fed from it: written by feed_resolve and argmax only.
struct Cell {
  std::uint32_t id = 0;
  Status status = Status::ok;
  std::uint32_t tag = 0;  // of the step that wrote it
};

// Same layout as troupe::Readback (the model asserts it).
struct RowReadback {
  std::uint32_t input = 0;
  std::uint32_t id = 0;
  Status status = Status::ok;
  std::uint32_t tag = 0;
};

// One row of a step: n_tokens tokens of one sequence at positions [position, position + n_tokens).
struct StepRow {
  std::uint32_t slot = 0;
  std::uint32_t position = 0;
  std::uint32_t n_tokens = 1;
  std::uint32_t fed = 0;         // 1: its one id is read from a cell
  std::uint32_t index = 0;       // host: first id; fed: the row of that cell array
  std::uint32_t feed_cells = 0;  // fed: index of the cell array
  std::uint32_t feed_tag = 0;    // fed: the tag that the cell must hold
  std::uint32_t mask_a = kNone;
  std::uint32_t mask_b = kNone;
  std::uint32_t output = kNone;      // row of the logits; kNone: wants no token
  std::uint32_t logits_row = kNone;  // where its logits are read back to; kNone: nowhere
  std::uint32_t sampled = 0;         // 1: a SampleRow names it, and argmax leaves its token to sample
  std::uint32_t state_in = kNone;    // of a model with recurrent layers: the version of its sequence's state that it reads;
                                     // kNone: the state before position 0, which is zero
  std::uint32_t state_out = kNone;   // and the one that it writes: another
};

// A token of the step, made from the rows on the device. slot == kNone: the row's block table does not cover it, so
// it reads and writes no KV (its row's cell is poisoned).
struct StepToken {
  std::uint32_t id = 0;
  std::uint32_t slot = kNone;
  std::uint32_t position = 0;
};

struct TableChange {
  std::uint32_t slot = 0;
  std::uint32_t index = 0;
  std::uint32_t block = 0;  // kNone: the entry names no block from now on
};

// Block tables: entries[slot][index] = block + 1, 0 = none (so zeroed memory is an empty table).
struct BlockTables {
  std::uint32_t* entries = nullptr;
  std::uint32_t n_slots = 0;
  std::uint32_t blocks_per_slot = 0;
};

// The KV cache of all layers. Its layout belongs to the implementation (kv_bytes says its size); zeroed at start.
struct KvCache {
  void* data = nullptr;
  std::uint32_t n_layers = 0;
  std::uint32_t n_blocks = 0;
  std::uint32_t block_size = 16;  // positions
  std::uint32_t n_kv_heads = 0;
  std::uint32_t head_dim = 0;
};

// The recurrent state of sequences, in versions: what the layers of the gated delta rule (Yang, Kautz, Hatamizadeh 2024,
// arXiv 2412.06464) carry from a position to the next. Of one layer, version v: first the inputs of the causal convolution
// at the last taps - 1 positions, oldest first [taps - 1][channels]; then of each value head its matrix, in strips of kStrip
// columns: [v_heads][strips][k_dim][kStrip], columns behind v_dim 0. F32.
struct RecurrentStates {
  static constexpr std::uint32_t kStrip = 16;
  float* data = nullptr;  // [n_versions][n_layers][layer_floats()]
  std::uint32_t n_versions = 0;
  std::uint32_t n_layers = 0;  // recurrent ones
  std::uint32_t k_heads = 0;
  std::uint32_t v_heads = 0;  // a multiple of k_heads; value head h reads key head h / (v_heads / k_heads)
  std::uint32_t k_dim = 0;
  std::uint32_t v_dim = 0;
  std::uint32_t taps = 0;  // of the convolution, at least 2

  TROUPE_HOST_DEVICE std::uint32_t key_width() const { return k_heads * k_dim; }
  TROUPE_HOST_DEVICE std::uint32_t value_width() const { return v_heads * v_dim; }
  TROUPE_HOST_DEVICE std::uint32_t channels() const { return 2 * key_width() + value_width(); }  // q, k, v
  TROUPE_HOST_DEVICE std::uint32_t strips() const { return (v_dim + kStrip - 1) / kStrip; }
  TROUPE_HOST_DEVICE std::size_t conv_floats() const { return static_cast<std::size_t>(taps - 1) * channels(); }
  TROUPE_HOST_DEVICE std::size_t strip_floats() const { return static_cast<std::size_t>(k_dim) * kStrip; }
  TROUPE_HOST_DEVICE std::size_t layer_floats() const { return conv_floats() + v_heads * strips() * strip_floats(); }
  TROUPE_HOST_DEVICE std::size_t version_floats() const { return n_layers * layer_floats(); }
  TROUPE_HOST_DEVICE std::size_t floats() const { return n_versions * version_floats(); }
  TROUPE_HOST_DEVICE float* at(std::uint32_t version, std::uint32_t layer) const {
    return data + (static_cast<std::size_t>(version) * n_layers + layer) * layer_floats();
  }
};

// One recurrent layer over the tokens of a step. Tokens are in row order.
struct RecurrentArgs {
  const StepRow* rows = nullptr;
  std::uint32_t n_rows = 0;
  std::uint32_t n_tokens = 0;    // of all rows
  std::uint32_t layer = 0;       // among the recurrent ones
  const float* conv = nullptr;   // [taps][channels]; tap j multiplies the input taps - 1 - j positions back
  const float* input = nullptr;  // [n_tokens][channels]: before the convolution
  float* mixed = nullptr;        // [n_tokens][channels]: behind it
  const float* decay = nullptr;  // [n_tokens][v_heads]
  const float* beta = nullptr;   // [n_tokens][v_heads]
  float* out = nullptr;          // [n_tokens][value_width]
};

struct FeedArgs {
  const StepRow* rows = nullptr;
  std::uint32_t n_rows = 0;
  const std::uint32_t* ids = nullptr;        // host ids
  const Cell* const* cell_arrays = nullptr;  // by ring slot, max_rows cells each
  Cell* cells = nullptr;                     // this step's own
  std::uint32_t tag = 0;                     // this step's own
  std::uint32_t vocab = 0;
  std::uint32_t block_size = 16;
  std::uint32_t n_blocks = 0;  // of the KV cache
  std::uint32_t window = 0;    // as AttentionArgs::window: blocks behind it need not be there
  BlockTables tables;
  StepToken* tokens = nullptr;  // out [sum of n_tokens], in row order
  // out, [slot][position]: each token's id at its place, kept from step to step; null: not kept. So what a sequence's row
  // reads up to its own position are the ids that led to it, also after steps whose results were dropped.
  std::uint32_t* history = nullptr;
  std::uint32_t history_stride = 0;  // positions of a slot; what lies behind it is not kept
  RowReadback* readback = nullptr;   // out [n_rows]: input, status and tag; id 0
};

struct IdBias {
  std::uint32_t id = 0;
  float bias = 0.0f;
};

// How the token of a row with an output is chosen where it is not the argmax. Names and meaning as in vLLM.
struct SampleRow {
  std::uint32_t row = 0;            // of the step
  std::uint32_t output_index = 0;   // of the request's output: the Philox counter
  std::uint64_t seed = 0;           // the Philox key
  std::uint32_t prompt_length = 0;  // what the history holds from there on is output
  float temperature = 0.0f;         // 0: the best candidate
  std::uint32_t top_k = 0;          // 0 = off
  float top_p = 1.0f;
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  std::uint32_t bias_begin = 0;  // in SampleArgs::biases
  std::uint32_t n_biases = 0;
  std::uint32_t bar_begin = 0;  // in SampleArgs::ids: ids that may not be chosen, beside the row's two masked ids
  std::uint32_t n_bars = 0;
  std::uint32_t history_begin = 0;  // in SampleArgs::ids: those of its slot's positions [0, n_history), for the history
  std::uint32_t n_history = 0;
  std::uint32_t n_best = 0;            // how many best candidates' log-probabilities are wanted beside its own
  std::uint32_t logprobs_row = kNone;  // in SampleArgs::logprobs; kNone: none are wanted

  TROUPE_HOST_DEVICE bool penalizes() const { return repetition_penalty != 1.0f || presence_penalty != 0.0f || frequency_penalty != 0.0f; }
};

// Log-probabilities of a row: of the logits as they are, before penalties, biases and bars.
struct RowLogprobs {
  static constexpr std::uint32_t kMaxBest = 20;
  float chosen = 0.0f;
  std::uint32_t n_best = 0;  // min(SampleRow::n_best, kMaxBest, candidates)
  std::uint32_t ids[kMaxBest] = {};
  float best[kMaxBest] = {};
};

struct SampleArgs {
  const StepRow* rows = nullptr;       // of the step
  const SampleRow* samples = nullptr;  // [n], each of another row
  std::uint32_t n = 0;
  const float* logits = nullptr;
  std::uint32_t vocab = 0;  // at most kMaxVocab (sampling_math.h)
  std::uint32_t tag = 0;
  const IdBias* biases = nullptr;
  const std::uint32_t* ids = nullptr;  // the step's, as FeedArgs::ids
  std::uint32_t* history = nullptr;    // as FeedArgs::history
  std::uint32_t history_stride = 0;
  Cell* cells = nullptr;
  RowReadback* readback = nullptr;
  RowLogprobs* logprobs = nullptr;
};

// y[t][r] for r < w.rows, at y + t * stride + r. add: y[t][r] = y[t][r] + (W x[t])[r] (a residual), else = . Then, if
// there is a bias, y[t][r] = y[t][r] + bias[r].
struct MatmulJob {
  Weight w;
  float* y = nullptr;
  std::size_t stride = 0;
  bool add = false;
  const float* bias = nullptr;  // [w.rows]
};

// What an adapter adds at one matrix: y = y + B (scale * (A x)).
struct LoraWeight {
  const float* a = nullptr;  // [rank][cols]
  const float* b = nullptr;  // [rank][rows]: B transposed
  std::uint32_t rank = 0;    // 0: it leaves this matrix alone
  float scale = 0.0f;
};

// Consecutive tokens of a step whose rows run under the adapter in `slot`.
struct LoraRun {
  std::uint32_t first_token = 0;
  std::uint32_t n_tokens = 0;
  std::uint32_t slot = 0;
};

struct LoraJob {
  const LoraWeight* slots = nullptr;  // of one matrix, by slot
  std::uint32_t rows = 0;
  float* y = nullptr;  // y[t][r] at y + t * stride + r
  std::size_t stride = 0;
};

struct AttentionArgs {
  const StepToken* tokens = nullptr;
  std::uint32_t n_tokens = 0;
  std::uint32_t layer = 0;
  std::uint32_t n_heads = 0;  // a multiple of kv.n_kv_heads; query head h reads KV head h / (n_heads / n_kv_heads)
  const float* q = nullptr;   // [n_tokens] rows of n_heads * head_dim, q_stride apart
  std::size_t q_stride = 0;
  float* out = nullptr;  // [n_tokens][n_heads * head_dim]
  float scale = 1.0f;
  std::uint32_t window = 0;  // a position sees itself and the window - 1 before it; 0 = all before it
};

struct RopeArgs {
  const StepToken* tokens = nullptr;
  std::uint32_t n_tokens = 0;
  std::uint32_t layer = 0;
  std::uint32_t n_heads = 0;
  std::uint32_t rotated = 0;  // leading elements of a head that are rotated (even)
  float* q = nullptr;         // [n_tokens], stride apart; rotated in place
  const float* k = nullptr;   // [n_tokens][n_kv_heads * head_dim], stride apart
  const float* v = nullptr;
  std::size_t stride = 0;
  const float* angles = nullptr;  // [n_tokens][rotated / 2][2]: cos, sin
  bool halves = false;            // which elements pair i holds: 2i and 2i + 1, or (halves) i and i + rotated / 2
};

class Kernels {
 public:
  virtual ~Kernels() = default;

  // Bytes of a KV cache of that shape, and of the 16-bit or 32-bit format that this instance keeps it in.
  virtual std::size_t kv_bytes(const KvCache& shape) const = 0;

  // A block's KV in all layers, packed: its bytes, and copies out of the cache and into it. The packing is this
  // implementation's own, and the same for every block of caches of that shape. 0 bytes: this one cannot copy blocks.
  virtual std::size_t kv_block_bytes(const KvCache& shape) const { return (void)shape, 0; }
  virtual void read_block(const KvCache& kv, std::uint32_t block, void* to) { (void)kv, (void)block, (void)to; }
  virtual void write_block(const KvCache& kv, std::uint32_t block, const void* from) { (void)kv, (void)block, (void)from; }

  // In order. An entry outside the tables is dropped (the model refuses it before).
  virtual void apply_changes(const BlockTables& tables, const TableChange* changes, std::uint32_t n) = 0;

  // Ids, slots and positions of all tokens, and each row's own cell: {0, ok, tag}; or for a row that fails
  //   - fed, and the cell's tag is not feed_tag:          stale_feed, its token is id 0
  //   - fed, and the cell holds an error:                 poisoned,   its token is id 0
  //   - an id >= vocab, or positions without a KV block:  poisoned,   id 0 / no KV
  //   - not an error, but the row wants no token:         no_token in the cell alone (so that nothing is fed from it)
  // The tag is compared always.
  virtual void feed_resolve(const FeedArgs& args) = 0;

  // x[t] = row tokens[t].id of w, dequantized to F32.
  virtual void embed(const Weight& w, const StepToken* tokens, std::uint32_t n_tokens, float* x) = 0;

  // y[t] = (x[t] * (1 / sqrt(lanes16(x[t]^2) / width + eps))) * gain. x and y may be the same.
  virtual void rms_norm(const float* x, const float* gain, float* y, std::uint32_t n_rows, std::uint32_t width, float eps) = 0;

  // The same in place on each of n_heads heads of width elements that lie side by side, rows stride apart.
  virtual void norm_heads(float* x, std::size_t stride, const float* gain, std::uint32_t n_rows, std::uint32_t n_heads, std::uint32_t width,
                          float eps) = 0;

  // All jobs read the same x [n_rows][cols]. Weights are read once per call.
  //   exact: weights dequantized to F32, order lanes16.
  //   fast:  F32, F16 and BF16 weights as exact; quantized ones by blocks32 on x quantized to 8 bits in blocks of 32: scale =
  //          max|x| / 127, codes to nearest even. A block with a NaN or an infinity makes its results NaN.
  virtual void matmul(std::span<const MatmulJob> jobs, const float* x, std::uint32_t n_rows, std::uint32_t cols) = 0;

  // For the tokens of the runs, and no others: y[t][r] = y[t][r] + (sum of s[k] * B[r][k], ascending k from 0, one multiply and
  // one add each), s[k] = lanes16(A[k] * x[t]) * scale. All jobs read the same x [..][cols]. F32 in every mode. jobs and runs
  // themselves (not what they point to) are the caller's memory, read before the call returns; no two runs share a token.
  virtual void lora(std::span<const LoraJob> jobs, std::span<const LoraRun> runs, const float* x, std::uint32_t cols) = 0;

  // angles[t][i] = cos, sin of position * inv_freq[i], computed in double and rounded to F32.
  virtual void rope_angles(const StepToken* tokens, std::uint32_t n_tokens, const double* inv_freq, std::uint32_t n_freqs,
                           float* angles) = 0;
  // Rotates pairs (a, b) of each head: (a cos - b sin, a sin + b cos); q in place, k on its way into the cache, v as it
  // is.
  virtual void rope_store(const RopeArgs& args, const KvCache& kv, const BlockTables& tables) = 0;

  // out = softmax(scale * q k^T) v over positions 0 (or the window's first) .. tokens[t].position; blocks before the
  // first position are not read. q.k: ascending over the head's elements,
  // one multiply and one add each. Weights exp(score - max); their sum: lanes16 over absolute positions. Weighted sum
  // of v: ascending positions; times 1 / sum.
  virtual void attention(const AttentionArgs& args, const KvCache& kv, const BlockTables& tables) = 0;

  // From here to sigmoid_mul: what models with recurrent layers or gated attention need.

  // mixed[t][c] = silu(sum over taps, ascending, one multiply and one add each), silu as in silu_mul. Writes the convolution's
  // part of the state that each row leaves.
  virtual void causal_conv(const RecurrentArgs& args, const RecurrentStates& states) = 0;
  // In place, of each token and value head: a = exp(-exp(a_log) softplus(a + dt_bias)), softplus(x) = log(1 + exp(x)) or, above
  // 20, x; b = 1 / (1 + exp(-b)). exp and log of sampling_math.h. rate = exp(a_log).
  virtual void delta_gates(float* a, float* b, const float* rate, const float* dt_bias, std::uint32_t n_tokens, std::uint32_t heads) = 0;
  // The gated delta rule, position by position, whatever the row: per value head with its q, k [k_dim] and v of `mixed`, state S
  //   S = decay S;  m = S^T k;  S = S + k (beta (v - m))^T;  out = S^T q,
  // sums over k_dim ascending, one multiply and one add each. Writes the rest of the state that each row leaves.
  virtual void delta_rule(const RecurrentArgs& args, const RecurrentStates& states) = 0;
  // from[t] = n_heads pairs of heads of `width` elements: the first of each goes to first[t] (stride apart), the other to
  // second[t][n_heads * width].
  virtual void split_heads(const float* from, std::uint32_t n_tokens, std::uint32_t n_heads, std::uint32_t width, float* first,
                           std::size_t stride, float* second) = 0;
  // x[i] = x[i] / (1 + exp(-gate[i]))
  virtual void sigmoid_mul(float* x, const float* gate, std::size_t n) = 0;

  // gate[i] = (gate[i] / (1 + exp(-gate[i]))) * up[i]
  virtual void silu_mul(float* gate, const float* up, std::size_t n) = 0;

  // out[rows[r].output] = x[last token of row r] for every row with an output.
  virtual void gather_outputs(const StepRow* rows, std::uint32_t n_rows, const float* x, std::uint32_t width, float* out) = 0;

  // Per row with an output whose cell is ok: p = the lowest index of the largest logit that is no NaN; if p is one of
  // the row's two masked ids, the same with both excluded. Nothing left: no_token, id 0. Into the row's cell and
  // readback[r].{id, status}; a cell that holds an error already keeps it. Rows with logits_row: their logits are
  // copied to logits_out[logits_row].
  virtual void argmax(const StepRow* rows, std::uint32_t n_rows, const float* logits, std::uint32_t vocab, std::uint32_t tag, Cell* cells,
                      RowReadback* readback, float* logits_out) = 0;

  // After argmax. Each row's new history is written into its slot's. Then, for rows whose cell is ok (one that holds an error
  // keeps it), from the row's logits: penalties for every id
  // of its history up to its last token (sampling_math.h), then biases in order, then the barred ids and the row's two masked
  // ids made -infinity; then as sampling.h chooses with the draw philox_draw(seed, output_index, 0), or at temperature 0 the
  // best candidate. No candidate: no_token, id 0. Into the row's cell, readback[row].{id, status} and logprobs.
  virtual void sample(const SampleArgs& args) = 0;
};

}  // namespace troupe::kernels
