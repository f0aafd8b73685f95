// A step on its way to the device: the scheduler's StepPlan, and the LaunchedStep that the router makes of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "messages/effect.h"
#include "messages/feed.h"
#include "messages/ids.h"
#include "messages/request.h"

namespace troupe {

enum class RowReadback : std::uint8_t {
  none,    // a chunk of a prompt that is not its last
  argmax,  // the device chooses: masked argmax into the row's feed cell
  logits,  // the host chooses: the row's logits come back (the cell is written too)
  sample,  // the device chooses as the row's RowSample says, into the row's feed cell
};

// A row = one sequence's next token, or a chunk of its prompt, at positions [position, position + n_tokens).
struct Row {
  SeqId seq;
  std::uint32_t epoch = 0;
  std::uint32_t position = 0;
  std::uint32_t n_tokens = 1;  // 1 if the source is a feed
  FeedSource source;
  RowMask mask;
  AdapterRef adapter;
  RowReadback readback = RowReadback::argmax;
};

// How the device chooses the token of one row with readback sample: SamplingParams, flat. Its draw is Philox of (seed,
// output_index). Penalties count the ids that the device keeps of positions [0, position + n_tokens) of the row; those before
// n_history were not computed in the row's slot (a prefix hit, a restored state), and come along.
struct RowSample {
  std::uint32_t row = 0;  // of the step
  std::uint32_t output_index = 0;
  std::uint64_t seed = 0;
  std::uint32_t prompt_length = 0;
  float temperature = 0;
  std::uint32_t top_k = 0;
  float top_p = 1;
  float min_p = 0;
  float repetition_penalty = 1;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  std::uint32_t bias_begin = 0;  // in the step's biases
  std::uint32_t n_biases = 0;
  std::uint32_t bar_begin = 0;  // in the step's tokens: ids that may not be chosen
  std::uint32_t n_bars = 0;
  std::uint32_t history_begin = 0;  // in the step's tokens
  std::uint32_t n_history = 0;
  std::uint32_t n_best = 0;
  std::uint32_t logprobs_row =
      kNone;  // in a LaunchedStep: which place of the slot's log-probabilities. In a plan, other than kNone: wanted
  static constexpr std::uint32_t kNone = 0xFFFFFFFFu;
};
static_assert(std::is_trivially_copyable_v<RowSample>);

// Which of the device's streams a step is on: the compute stream, with whatever rows; or, where prefill has a stream of its own,
// that one, and then the compute stream has the rest. Steps of one stream run and settle in order; of two, in any.
inline constexpr std::uint32_t kComputeStream = 0, kPrefillStream = 1, kStepStreams = 2;

struct StepPlan {
  Ticket ticket;
  std::vector<Effect> effects;  // applied first, whether or not the rows are then accepted
  std::vector<Row> rows;
  std::vector<Token> tokens;       // what the rows' host sources index, and the samples' bars and histories
  std::vector<RowSample> samples;  // of the rows with readback sample, in their order
  std::vector<TokenBias> biases;
  std::uint32_t stream = kComputeStream;
  void clear() {
    ticket = {};
    stream = kComputeStream;
    effects.clear();
    rows.clear();
    tokens.clear();
    samples.clear();
    biases.clear();
  }
};

// One entry of a device-side block table that this step changes: table[slot][index] = block. kNoBlock: the block lies
// behind the window and went back; whoever reads it from now on is wrong.
struct TableDelta {
  std::uint32_t slot = 0;
  std::uint32_t index = 0;
  BlockId block = 0;
};

// A row as the device sees it: slots and cells, no sequences.
struct DeviceRow {
  static constexpr std::uint32_t kNone = 0xFFFFFFFFu;
  std::uint32_t slot = 0;      // which block table
  std::uint32_t position = 0;  // of its first token
  std::uint32_t n_tokens = 1;
  FeedSource::Kind source = FeedSource::Kind::host;
  std::uint32_t index = 0;       // host: first id in LaunchedStep::tokens; feed: row in that cell array
  std::uint32_t feed_cells = 0;  // feed: which cell array (= ring slot of the step it is fed from)
  std::uint32_t feed_tag = 0;    // feed: the tag that the cell must hold
  RowMask mask;
  std::uint32_t adapter_slot = 0;
  bool wants_token = true;           // readback is argmax, logits or sample
  bool sampled = false;              // readback is sample
  std::uint32_t logits_row = kNone;  // readback is logits: which row of the slot's logits area
  // Of a model with recurrent layers: which versions of the sequence's state it reads (kNone: none, it begins) and writes.
  std::uint32_t state_in = kNone;
  std::uint32_t state_out = kNone;
};

// Everything made at start for one slot of the ring; the values are handles of the driver that made them.
struct SlotHandles {
  std::uint32_t slot = 0;
  std::uint64_t event = 0;
  std::uint64_t readback = 0;             // page-locked Readback[max rows]
  std::uint64_t logits = 0;               // page-locked float[max logits rows][vocabulary]
  std::uint64_t logprobs = 0;             // page-locked ReadLogprobs[max rows]; 0: the device does not sample
  std::uint64_t cells = 0;                // device memory, the model's feed cells [max rows]
  std::uint64_t upload = 0;               // page-locked bytes for ids, rows and table deltas
  std::uint32_t stream = kComputeStream;  // whose steps use it
};

struct LaunchedStep {
  Ticket ticket;
  SlotHandles slot;
  std::uint32_t n_tokens = 0;  // over all rows
  std::uint32_t n_logits = 0;
  std::uint32_t n_logprobs = 0;
  std::vector<TableDelta> deltas;
  std::vector<DeviceRow> rows;
  std::vector<Token> tokens;
  std::vector<RowSample> samples;
  std::vector<TokenBias> biases;
  void clear() {
    ticket = {};
    slot = {};
    n_tokens = n_logits = n_logprobs = 0;
    deltas.clear();
    rows.clear();
    tokens.clear();
    samples.clear();
    biases.clear();
  }
};

template <class I>
auto inspect(I& f, Row& x) {
  return f(x.seq, x.epoch, x.position, x.n_tokens, x.source, x.mask, x.adapter, x.readback);
}
template <class I>
auto inspect(I& f, RowSample& x) {
  return f(x.row, x.output_index, x.seed, x.prompt_length, x.temperature, x.top_k, x.top_p, x.min_p, x.repetition_penalty,
           x.presence_penalty, x.frequency_penalty, x.bias_begin, x.n_biases, x.bar_begin, x.n_bars, x.history_begin, x.n_history, x.n_best,
           x.logprobs_row);
}
template <class I>
auto inspect(I& f, StepPlan& x) {
  return f(x.ticket, x.effects, x.rows, x.tokens, x.samples, x.biases, x.stream);
}
template <class I>
auto inspect(I& f, TableDelta& x) {
  return f(x.slot, x.index, x.block);
}
template <class I>
auto inspect(I& f, DeviceRow& x) {
  return f(x.slot, x.position, x.n_tokens, x.source, x.index, x.feed_cells, x.feed_tag, x.mask, x.adapter_slot, x.wants_token, x.sampled,
           x.logits_row, x.state_in, x.state_out);
}
template <class I>
auto inspect(I& f, SlotHandles& x) {
  return f(x.slot, x.event, x.readback, x.logits, x.logprobs, x.cells, x.upload, x.stream);
}
template <class I>
auto inspect(I& f, LaunchedStep& x) {
  return f(x.ticket, x.slot, x.n_tokens, x.n_logits, x.n_logprobs, x.deltas, x.rows, x.tokens, x.samples, x.biases);
}

std::string label(const Row& x);  // "s1.5 e0 @12 feed(t1.41[3])"
// "Prefill{n=2, tokens=64}" | "Decode{n=4}" | "DecodeFed{n=4, fed=3}" | "Mixed{n=5, fed=3, tokens=68}" | "Effects{2}";
// "Prefill{n=2, tokens=64} aside" on the prefill stream
std::string label(const StepPlan& x);
std::string label(const LaunchedStep& x);  // "Step{t1.42, slot=0, n=4, fed=3}", with " aside" likewise

}  // namespace troupe
