// A step on its way to the device: the scheduler's StepPlan, and the LaunchedStep that the router makes of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "messages/effect.h"
#include "messages/feed.h"
#include "messages/ids.h"

namespace troupe {

enum class RowReadback : std::uint8_t {
  none,    // a chunk of a prompt that is not its last
  argmax,  // the device chooses: masked argmax into the row's feed cell
  logits,  // the host chooses: the row's logits come back (the cell is written too)
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

struct StepPlan {
  Ticket ticket;
  std::vector<Effect> effects;  // applied first, whether or not the rows are then accepted
  std::vector<Row> rows;
  std::vector<Token> tokens;  // what the rows' host sources index
  void clear() {
    ticket = {};
    effects.clear();
    rows.clear();
    tokens.clear();
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
  std::uint32_t slot = 0;       // which block table
  std::uint32_t position = 0;   // of its first token
  std::uint32_t n_tokens = 1;
  FeedSource::Kind source = FeedSource::Kind::host;
  std::uint32_t index = 0;      // host: first id in LaunchedStep::tokens; feed: row in that cell array
  std::uint32_t feed_cells = 0; // feed: which cell array (= ring slot of the step it is fed from)
  std::uint32_t feed_tag = 0;   // feed: the tag that the cell must hold
  RowMask mask;
  std::uint32_t adapter_slot = 0;
  bool wants_token = true;               // readback is argmax or logits
  std::uint32_t logits_row = kNone;      // readback is logits: which row of the slot's logits area
};

// Everything made at start for one slot of the ring; the values are handles of the driver that made them.
struct SlotHandles {
  std::uint32_t slot = 0;
  std::uint64_t event = 0;
  std::uint64_t readback = 0;  // page-locked Readback[max rows]
  std::uint64_t logits = 0;    // page-locked float[max logits rows][vocabulary]
  std::uint64_t cells = 0;     // device memory, the model's feed cells [max rows]
  std::uint64_t upload = 0;    // page-locked bytes for ids, rows and table deltas
};

struct LaunchedStep {
  Ticket ticket;
  SlotHandles slot;
  std::uint32_t n_tokens = 0;  // over all rows
  std::uint32_t n_logits = 0;
  std::vector<TableDelta> deltas;
  std::vector<DeviceRow> rows;
  std::vector<Token> tokens;
  void clear() {
    ticket = {};
    slot = {};
    n_tokens = n_logits = 0;
    deltas.clear();
    rows.clear();
    tokens.clear();
  }
};

template <class I> auto inspect(I& f, Row& x) { return f(x.seq, x.epoch, x.position, x.n_tokens, x.source, x.mask, x.adapter, x.readback); }
template <class I> auto inspect(I& f, StepPlan& x) { return f(x.ticket, x.effects, x.rows, x.tokens); }
template <class I> auto inspect(I& f, TableDelta& x) { return f(x.slot, x.index, x.block); }
template <class I> auto inspect(I& f, DeviceRow& x) {
  return f(x.slot, x.position, x.n_tokens, x.source, x.index, x.feed_cells, x.feed_tag, x.mask, x.adapter_slot, x.wants_token, x.logits_row);
}
template <class I> auto inspect(I& f, SlotHandles& x) { return f(x.slot, x.event, x.readback, x.logits, x.cells, x.upload); }
template <class I> auto inspect(I& f, LaunchedStep& x) { return f(x.ticket, x.slot, x.n_tokens, x.n_logits, x.deltas, x.rows, x.tokens); }

std::string label(const Row& x);           // "s1.5 e0 @12 feed(t1.41[3])"
// "Prefill{n=2, tokens=64}" | "Decode{n=4}" | "DecodeFed{n=4, fed=3}" | "Mixed{n=5, fed=3, tokens=68}" | "Effects{2}"
std::string label(const StepPlan& x);
std::string label(const LaunchedStep& x);  // "Step{t1.42, slot=0, n=4, fed=3}"

}  // namespace troupe
