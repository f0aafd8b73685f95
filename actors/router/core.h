// The router: owns tickets, every sequence's device bookkeeping, the KV block pool, the reservation ledger and the
// ring slots of one device, and turns the scheduler's plans into steps for the stream actor (DESIGN §2, §5.1).
//
// Invariants, after every message
//   - every block is in exactly one class: free + used + cached + fenced == total (R8);
//   - settled_len <= launched_len <= what the block table of a live sequence covers;
//   - a block, a slot or a ring slot returns only when no open ticket and no copy in flight names it (R3, R4);
//   - a block in the prefix cache holds settled positions only and is never written again (R3);
//   - of a model with recurrent layers, a sequence has depth + 1 versions of its state from its opening to its fence: the one
//     as of settled_len, and one for each of its rows in flight, each of which reads the one before; no step in flight that
//     counts writes the settled one, so that a redo reads it again, and nothing is copied (R2, R3);
//   - its prefix hits end where a snapshot of the state is: a version that was settled, is read by whoever begins behind it, and
//     is never written while it is kept, by a sequence or for a hit; what nobody reads may be given up, used longest ago first;
//   - of a model with a window, blocks that no position from settled_len on reads are given back, others are not.
// Completions come in the order of the steps (the device actor's promise), and awaited tickets are answered in it; of steps on two
// streams each in its own. A sequence is on one stream at a time (R12), so what holds for the steps of one stream in their order
// holds for a sequence's; and what is counted by step (fences) names the stream.
//
// Deterministic: no clock, no thread, no driver. One thread at a time (the router actor's).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "actors/outbox.h"
#include "messages/protocol.h"

namespace troupe::actors {

// Switches that break one rule each, for negative controls only.
enum class RouterFault : std::uint8_t {
  none,
  free_at_finish,      // R3: blocks and slot return while steps in flight name them
  skip_rollback,       // R2: the launched length does not fall
  reuse_ring_early,    // R4: a slot whose logits are being read is used again
  optimistic_length,   // R2: what is launched counts as settled; of a model with a window, for what lies behind it
  lora_in_flight,      // R9: the table changes while tickets in flight name the adapter that goes
  lora_at_finish,      // R9: users are counted at their finish, not at the fence
  free_before_copy,    // R3: blocks return while a save still reads them
  newest_state,        // R2: after a rollback the newest version of the recurrent state is read, not the settled one
  states_at_finish,    // R3: versions return while steps in flight name them
  evict_in_use,        // R3: a snapshot is given up while a sequence reads it
  shift_snapshot,      // a snapshot is kept for the block before the one that it is of
  stale_cell,          // R6: a row is fed from another step's cell, with that step's tag
  wait_unrecorded,     // R12: a copy is sent to its stream before the event that it waits for is recorded
  snapshot_unsettled,  // R2: the newest version of the recurrent state is kept as the snapshot, not the settled one
  save_newest_state,   // R2: the newest version of the recurrent state is saved, not the settled one
  trust_half_copy,     // R3: blocks that a copy on another stream may write at any time are used again
  trust_join,          // R12: rows are launched while a step of another stream names their sequence
  fence_one_stream,    // R3: what steps on the prefill stream name is not fenced
};

struct RouterConfig {
  std::uint32_t incarnation = 1;
  std::uint32_t depth = 2;  // most steps in flight of a stream, cut to ModelInfo::max_depth; ring slots = depth + 1 for each
  bool prefix_cache = true;
  RouterFault fault = RouterFault::none;
};

// Counted since start.
struct RouterStats {
  std::uint64_t releases_now = 0;     // sequences that nothing in flight named
  std::uint64_t releases_fenced = 0;  // sequences that waited at their fence (R3)
  std::uint64_t kv_refusals = 0;      // launches answered kv_exhausted
  std::uint64_t ring_refusals = 0;
  std::uint64_t prefix_hits = 0;    // opens that found blocks
  std::uint64_t prefix_blocks = 0;  // blocks that they found
  std::uint64_t published = 0;
  std::uint64_t snapshots = 0;           // of recurrent state that were kept
  std::uint64_t snapshots_given_up = 0;  // to make room, or with their block
  std::uint64_t reclaimed = 0;
  std::uint64_t behind_window = 0;         // blocks that went back because they lay behind the window
  std::uint64_t behind_window_fenced = 0;  // of those: named by a step in flight (R3)
  std::uint64_t late = 0;                  // completions of nothing that is open
  std::uint64_t saves = 0;                 // sequences that were to be saved
  std::uint64_t save_failures = 0;
  std::uint64_t restores = 0;  // sequences that came back
  std::uint64_t restore_failures = 0;
  std::uint64_t marks = 0;  // events recorded for a copy on another stream to wait for
};

using RouterOutbox = Outbox<Opened, Accepted, Settled, Applied, LoraReply, TornDown, Enqueue, Saved, RecordEvent, CopyBlocks, WriteState,
                            ReadState, DropState, ChangeTable>;

class RouterCore {
 public:
  RouterCore(const RouterConfig& config, const ModelInfo& model);
  ~RouterCore();

  void on(const RingReady& m, TimeNs now, RouterOutbox& out);
  void on(const Open& m, TimeNs now, RouterOutbox& out);
  void on(const Launch& m, TimeNs now, RouterOutbox& out);
  void on(const Await& m, TimeNs now, RouterOutbox& out);
  void on(const Apply& m, TimeNs now, RouterOutbox& out);
  // R9: the change is made, and answered, once no sequence names what goes, released ones that wait at their fence
  // included. One at a time.
  void on(const Lora& m, TimeNs now, RouterOutbox& out);
  void on(const TableChanged& m, TimeNs now, RouterOutbox& out);
  void on(const Completed& m, TimeNs now, RouterOutbox& out);
  void on(const EventRecorded& m, TimeNs now, RouterOutbox& out);
  void on(const CopyDone& m, TimeNs now, RouterOutbox& out);
  void on(const StateWritten& m, TimeNs now, RouterOutbox& out);
  void on(const StateRead& m, TimeNs now, RouterOutbox& out);
  void on(const Teardown& m, TimeNs now, RouterOutbox& out);

  DeviceFacts facts() const;
  RouterStats stats() const;
  // Walks every table and recounts: empty, or a sentence that names the first rule that is broken. For tests, the
  // simulator and fault dumps; O(sequences + blocks).
  std::string check() const;

 private:
  struct State;
  // Answers who waits for the device: a Quiesce when nothing is in flight, a Teardown when no place is at work either.
  void settle_waiters(RouterOutbox& out);
  void finish_teardown(RouterOutbox& out);
  std::unique_ptr<State> s_;
};

}  // namespace troupe::actors
