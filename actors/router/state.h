// The router core's books. Included by the router's .cc files only.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "actors/router/core.h"
#include "device/kv/block_pool.h"
#include "device/kv/prefix_cache.h"

namespace troupe::actors {

// One sequence. Its SeqId number is (serial << 16 | index of its record), so that a lookup is an index and a compare.
struct alignas(64) RouterSequence {
  static constexpr std::uint32_t kNoSlot = 0xFFFFFFFFu;
  static constexpr std::uint32_t kNever = 0xFFFFFFFFu;
  // What every row of every step asks for lies in the first two cache lines.
  SeqId id;  // incarnation 0 = record unused
  std::uint32_t epoch = 0;
  std::uint32_t launched_len = 0;
  std::uint32_t settled_len = 0;
  std::uint32_t known_len = kNever;       // tokens in the history below; kNever: it is not kept
  std::uint32_t publish_at = kNever;      // the settled length at which publish() has something to do
  std::uint32_t open_steps = 0;           // tickets in flight that name it
  std::uint32_t slot = kNoSlot;           // kNoSlot: detached
  std::uint32_t stream = kComputeStream;  // that they are on, or were last
  std::uint8_t open_copies = 0;           // saves that still have to read its blocks
  bool released = false;                  // waits at its fence (R3)
  bool fenced = false;                    // released with steps or copies in flight: its blocks are
  bool stateless = false;                 // it was opened behind a snapshot, and is to be told to begin from it
  bool resend = false;                    // the device may not have its table: rows bring all of it until a step with one succeeds
  Token* next_known = nullptr;            // where the token at position known_len goes
  std::uint64_t planned_in = 0;           // the last plan that was checked and has a row of it
  std::uint64_t named_in = 0;             // the last step that was accepted and has a row of it
  AdapterRef adapter;
  // A block covers positions [index * block_size, + block_size). The first `behind` entries are kNoBlock: they lie behind
  // the window and went back. Of those the device has been told `told`.
  std::vector<BlockId> table;
  std::uint32_t behind = 0;
  std::uint32_t told = 0;

  // Of a model with recurrent layers: version v is states[v % states.size()] and holds the state as of position
  // state_ends[v % ...]. `settled_state` is that of settled_len (0: there is none before position 0, the state is zero),
  // `launched_state` that of launched_len. At most depth rows are in flight, so the versions in between are others.
  std::vector<std::uint32_t> states;
  std::vector<std::uint32_t> state_ends;
  std::uint32_t settled_state = 0;
  std::uint32_t launched_state = 0;
  // Version `base_at` is not in the ring of `states` but this one: a snapshot from which the sequence began, or its own settled
  // state, which is kept. Until a later version has settled, redone rows read it again.
  std::uint32_t base = kNoSlot;
  std::uint32_t base_at = 0;
  std::uint32_t base_end = 0;
  std::uint32_t checkpoint = kNoSlot;  // the newest kept state behind what it was opened with: a snapshot once it leaves
  std::uint32_t checkpoint_end = 0;
  std::uint32_t cut_first = 0, cut_second = 0;  // Opened's

  // For the prefix cache: the tokens that were known when it was opened, then those that its rows read, in order (they may
  // run ahead of what is settled), and how far they are published.
  Shared<Request> params;
  std::unique_ptr<Token[]> output;  // [context_length], once it was needed
  std::uint32_t opened_len = 0;     // tokens that were known when it was opened
  std::uint32_t published = 0;      // blocks
  device::PrefixCache::Ref last_published;
  RequestId request;

  bool at_fence() const { return released && open_steps == 0 && open_copies == 0; }
  device::TokenHistory known() const {
    if (!params) return {};
    return {params->prompt, {output.get(), next_known}};
  }
  void keep_history(Shared<Request> of, std::span<const Token> known_output, std::uint32_t context_length) {
    params = std::move(of);
    if (!output) output = std::make_unique_for_overwrite<Token[]>(context_length);
    next_known = std::copy(known_output.begin(), known_output.end(), output.get());
    known_len = opened_len = known().size();
  }
  void forget_history() {
    params = {};
    known_len = publish_at = kNever;
  }
  // Keeps the tokens of the first `n` positions only.
  void forget_from(std::uint32_t n) {
    if (known_len == kNever || known_len <= n) return;
    next_known = output.get() + (n - std::min<std::size_t>(n, params->prompt.size()));
    known_len = known().size();
  }
};

// A row of an open step, as the books need it. `ahead_blocks` is the reservation ledger (R8): blocks that were added
// for a fed row, booked to this ticket until the row is validated (Advance), disowned (Rollback) or released.
struct OpenRow {
  std::uint32_t record = 0;
  SeqId seq;
  std::uint32_t epoch = 0;
  std::uint32_t position = 0;
  std::uint32_t ahead_blocks = 0;
  bool whole_table = false;
};

// A block from behind a window, named by steps of `stream` up to `step` that were in flight when it went back (R3).
struct WindowFence {
  std::uint64_t step = 0;
  std::uint32_t stream = kComputeStream;
  BlockId block = kNoBlock;
};

// A slot of the ring, with the step that it serves.
struct RingSlot {
  enum class Use : std::uint8_t {
    free,
    in_flight,
    unread,  // settled; its result waits for an Await
    held,    // settled and answered; the logits in it are being read (until ReadLogits)
  };
  SlotHandles handles;
  Use use = Use::free;
  Ticket ticket;  // the last step that used it: its feed cells are intact until the slot is used again
  bool awaited = false;
  std::uint32_t n_logits = 0;
  std::vector<OpenRow> rows;
  Shared<StepResult> result;  // use == unread
};

// A place for one save or restore, and what it is at. A save holds its sequence's blocks until the last piece is copied.
// Where copies have a stream of their own, the first of each save and restore is ordered behind the compute stream: that one
// records the place's event, and only when it has said so is the copy sent, to wait for it (R12). What comes after a restore needs
// no wait: its sequence is opened when its copies have completed.
struct SpillPlace {
  enum class Use : std::uint8_t {
    free,
    ordering_out,  // the compute stream is to record the event
    copying_out,
    writing,
    reading,
    ordering_in,
    copying_in,
    retired,  // something may still use its memory: never used again
  };
  CopyHandles handles;
  Use use = Use::free;
  SeqId state;  // the sequence that was saved: names the file
  RequestId request;
  std::uint32_t record = 0;  // of the sequence that is saved, or brought back
  Ticket copy;
  Ticket mark;  // of the event that is to be recorded
  std::vector<BlockId> blocks;
  std::uint32_t version = RouterSequence::kNoSlot;  // of the recurrent state as of `positions`: its n_parts come behind the blocks
  std::uint32_t n_parts = 0;
  std::uint32_t positions = 0;
  std::uint32_t first_block = 0;
  std::uint32_t begin = 0;  // of the piece, in blocks and parts
  std::uint32_t count = 0;
  bool holds = false;  // save: counted in its sequence's open_copies
  bool last_piece() const { return begin + count == blocks.size() + n_parts; }
  bool ordering() const { return use == Use::ordering_out || use == Use::ordering_in; }
  bool copying() const { return use == Use::copying_out || use == Use::copying_in; }
  void leave() { use = Use::free; }
};

struct RouterCore::State {
  State(const RouterConfig& config, const ModelInfo& model);

  const RouterConfig config;
  const ModelInfo model;
  const std::uint32_t depth;
  const std::uint32_t table_capacity;  // blocks in a full context

  device::BlockPool pool;
  device::PrefixCache cache;
  std::vector<RouterSequence> sequences;
  std::vector<std::uint32_t> free_records;
  std::vector<std::uint32_t> free_slots;
  std::vector<std::uint32_t> free_states;  // versions of recurrent state
  std::uint64_t next_serial = 1;
  std::vector<RingSlot> ring;
  std::vector<WindowFence> window_fences;
  std::vector<RouterSequence*> planned;  // of the plan that validate() passed, by row
  std::uint64_t last_step = 0;           // highest step number that was accepted
  std::uint32_t in_flight = 0;
  std::array<std::uint32_t, kStepStreams> in_flight_on{};
  std::uint32_t streams = 1;  // with a ring
  std::vector<SpillPlace> places;
  std::uint64_t next_copy = 1;
  std::uint64_t next_mark = 1;
  bool quiesce_pending = false;
  bool lost = false;
  enum class Life : std::uint8_t { open, tearing, closed } life = Life::open;
  // lora.cc: the adapter table as the stream actor has it or is about to (generation by slot; 0 = nothing), and the change
  // that waits for its users, or for the stream actor.
  std::vector<std::uint32_t> adapters;
  struct TableChange {
    Lora command;
    bool sent = false;
  };
  std::optional<TableChange> change;
  std::uint32_t users(AdapterRef adapter) const;
  bool has(AdapterRef adapter) const;
  void try_change(RouterOutbox& out);

  Pool<LaunchedStep> steps;
  Pool<StepResult> errors;
  RouterStats stats;
  std::vector<std::uint32_t> count_entries, count_fences, count_slots, count_open, count_copies, count_states;  // check() only

  RouterSequence* find(SeqId id);
  RingSlot* find(Ticket ticket);  // in flight, unread or held
  // The slot whose feed cells are of step `ticket`; `guess` is looked at first. Null: they are gone.
  const RingSlot* cells_of(Ticket ticket, const RingSlot* guess) const;
  // The answer to anything that needs a working device: code none, or closed / device_lost.
  ErrorCode refusal() const;

  // launch.cc
  DeviceError validate(const StepPlan& plan);
  DeviceError validate_samples(const StepPlan& plan, std::uint32_t sampled) const;
  DeviceError reserve(const StepPlan& plan, LaunchedStep& step, RingSlot& slot);
  RingSlot* pick_slot(const StepPlan& plan);

  // effects.cc
  DeviceError apply(const Effect& effect, EffectOutcome& outcome, RouterOutbox& out);
  void learn(RouterSequence& s, const OpenRow& row, const Readback& read);
  void publish(RouterSequence& s, std::uint32_t len);
  void publish_next(RouterSequence& s) const;
  // Whether steps in flight may touch its blocks.
  bool is_named(const RouterSequence& s) const {
    if (config.fault == RouterFault::free_at_finish) return false;
    return s.open_steps > 0 && !(config.fault == RouterFault::fence_one_stream && s.stream == kPrefillStream);
  }
  DeviceError release(RouterSequence& s, EffectOutcome& outcome);
  void finish_release(RouterSequence& s);

  // core.cc
  void find_prefix(RouterSequence& s);

  // snapshots.cc
  // Versions that are kept: pinned by sequences (base, checkpoint), or a snapshot in the prefix cache, or both.
  struct Kept {
    std::uint32_t pins = 0;
    BlockId block = kNoBlock;  // a snapshot: of the state behind this one
    std::uint64_t used = 0;
  };
  std::vector<Kept> kept;            // by version
  std::uint32_t idle_snapshots = 0;  // that nobody pins
  std::uint64_t uses = 0;
  std::optional<std::uint32_t> take_version();
  void pin(std::uint32_t version);
  void unpin(std::uint32_t version);
  bool make_snapshot(std::uint32_t version, device::PrefixCache::Ref block);
  void reap();
  DeviceError apply_ssm(RouterSequence& s, const Effect& effect);
  void keep_state(RouterSequence& s, bool as_snapshot);
  void keep_checkpoint(RouterSequence& s);
  void find_snapshot(RouterSequence& s);
  // Where chunks of what is known from `len` on are to end; `branch`: positions that the prefix cache knows without a snapshot.
  void cut(RouterSequence& s, std::uint32_t len, std::uint32_t branch) const;

  // recurrent.cc
  std::uint32_t free_versions() const { return static_cast<std::uint32_t>(free_states.size()) + idle_snapshots; }
  std::uint32_t state_end(const RouterSequence& s, std::uint32_t v) const;
  std::uint32_t version_of(const RouterSequence& s, std::uint32_t v) const;           // v > 0, or the sequence began behind a snapshot
  std::uint32_t states_each() const { return model.has_ssm_layers ? depth + 1 : 0; }  // versions that a sequence has
  void take_states(RouterSequence& s);
  void give_states(RouterSequence& s);
  // Of a sequence that was just opened: its first version is what it settled up to `len`, and is to be brought back.
  std::uint32_t begin_at(RouterSequence& s, std::uint32_t len) const;
  // The versions that a row of n_tokens more reads and writes.
  void next_state(RouterSequence& s, std::uint32_t n_tokens, DeviceRow& row) const;
  void settle_state(RouterSequence& s);
  bool has_state(const RouterSequence& s, std::uint32_t len) const;  // as of position `len`, settled or launched
  std::string check_states(std::vector<std::uint32_t>& owners) const;

  // spill.cc
  // Of a sequence with `settled` positions: leading blocks that lie behind the window, and blocks in all.
  std::uint32_t first_block(std::uint32_t settled) const;
  std::uint32_t blocks_end(std::uint32_t settled) const;
  SpillPlace* free_place();
  SpillPlace* find_place(std::uint32_t index, SpillPlace::Use a, SpillPlace::Use b);
  std::uint32_t copies_in_flight() const;
  std::uint32_t busy_places() const;
  StatePiece piece_of(const SpillPlace& p) const;
  void next_piece(SpillPlace& p);
  void begin_copy(SpillPlace& p, bool to_host, RouterOutbox& out);
  void start_copy(SpillPlace& p, bool to_host, std::uint64_t after, RouterOutbox& out);
  DeviceError save(RouterSequence& s, EffectOutcome& outcome, RouterOutbox& out);
  void settle_save(SpillPlace& p);
  void end_save(SpillPlace& p, DeviceError error, RouterOutbox& out);
  DeviceError refuse_restore(const Open& m);
  void begin_restore(RouterSequence& s, const Open& m, RouterOutbox& out);
  void end_restore(SpillPlace& p, const Error& error, RouterOutbox& out);
  std::string check_places(std::vector<std::uint32_t>& copies) const;

  // window.cc
  // Gives back what no row from position `len` on reads.
  void reclaim(RouterSequence& s, std::uint32_t len);
  // The step has settled: blocks from behind a window that it was the last to name are past their fence.
  void settle_window(std::uint64_t step, std::uint32_t stream);

  DeviceFacts facts() const;
};

DeviceError device_error(DeviceError::Phase phase, ErrorCode code, std::string what, std::uint32_t row = 0);

}  // namespace troupe::actors
