// What the scheduler tells the router about sequences beside launching rows (seed: DeviceIo::apply). Effects that
// happen to every row of every step travel inside StepPlan::effects, in order, before the plan's rows; any of them
// may also come alone as an Apply message, with the same meaning.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <variant>

#include "messages/ids.h"
#include "messages/inspect_std.h"

namespace troupe {

// Positions below `settled_len` of the sequence hold for good. Never falls. Of a model with a window, the blocks that no
// position from it on reads go back.
struct Commit {
  SeqId seq;
  std::uint32_t epoch = 0;
  std::uint32_t settled_len = 0;
};
// The fed row `row` of step `ticket`, in flight, turned out to read the id that the host committed: the blocks booked
// to it become the sequence's own (seed: the launch bookkeeping of a validated fed row). Sent for rows at the beginning of
// a block: no other books one.
struct Advance {
  SeqId seq;
  Ticket ticket;
  std::uint32_t row = 0;
};
// Everything in flight for the sequence is disowned (R2): launched length falls to settled length, the epoch becomes
// `epoch` (larger than before), its blocks stay.
struct Rollback {
  SeqId seq;
  std::uint32_t epoch = 0;
};
// The sequence is over. Its slot and blocks return at its fence (R3): when the last step that names it has settled.
struct ReleaseSeq {
  SeqId seq;
};
// The logits that step `ticket` read back have been used; its ring slot may be reused (R4).
struct ReadLogits {
  Ticket ticket;
};
// Make the sequence's block table cover `positions` positions now. kv_exhausted when it cannot.
struct ReserveKv {
  SeqId seq;
  std::uint32_t positions = 0;
};
// Move the sequence to another free slot. not_quiescent while a ticket names either slot.
struct CompactSlot {
  SeqId seq;
  std::uint32_t to_slot = 0;
};
// Give the slot up and keep the blocks (parked). not_quiescent while a ticket names the slot.
struct DetachSlot {
  SeqId seq;
};
// Answered once no ticket is in flight; bad_plan if one is already pending.
struct Quiesce {};
// The sequence's settled positions go to a file, and it is over (as by ReleaseSeq): what is in flight for it is disowned,
// and its slot and blocks return when the last step and the last copy that name them have settled (R3). Answered by Saved.
struct SaveSequenceState {
  SeqId seq;
};
// Of a model with recurrent layers. The settled state of the sequence, which ends where Opened said that it should (cut_first,
// cut_second), is kept as a snapshot for prefix hits, if a version is free: nothing is copied, the version is just not written again.
struct SsmSnapshotSave {
  SeqId seq;
};
// Rows of the sequence, which was opened behind `snapshot` and has none yet, begin from it. Nothing is copied.
struct SsmSnapshotRestore {
  SeqId seq;
  std::uint32_t snapshot = 0;
};
// The settled state of the sequence, behind a full block of what it generated, is kept in the place of the one before it, if a
// version is free; it becomes a snapshot when the sequence leaves.
struct SsmCheckpoint {
  SeqId seq;
};

using Effect = std::variant<Commit, Advance, Rollback, ReleaseSeq, ReadLogits, ReserveKv, CompactSlot, DetachSlot, Quiesce,
                            SaveSequenceState, SsmSnapshotSave, SsmSnapshotRestore, SsmCheckpoint>;
static_assert(std::is_trivially_copyable_v<Effect>);

// What an effect that succeeded did.
struct EffectOutcome {
  std::uint32_t blocks = 0;  // ReserveKv: added; ReleaseSeq: returned now (0 = at the fence)
  bool fenced = false;       // ReleaseSeq: waits for the steps in flight
};

template <class I>
auto inspect(I& f, Commit& x) {
  return f(x.seq, x.epoch, x.settled_len);
}
template <class I>
auto inspect(I& f, Advance& x) {
  return f(x.seq, x.ticket, x.row);
}
template <class I>
auto inspect(I& f, Rollback& x) {
  return f(x.seq, x.epoch);
}
template <class I>
auto inspect(I& f, ReleaseSeq& x) {
  return f(x.seq);
}
template <class I>
auto inspect(I& f, ReadLogits& x) {
  return f(x.ticket);
}
template <class I>
auto inspect(I& f, ReserveKv& x) {
  return f(x.seq, x.positions);
}
template <class I>
auto inspect(I& f, CompactSlot& x) {
  return f(x.seq, x.to_slot);
}
template <class I>
auto inspect(I& f, DetachSlot& x) {
  return f(x.seq);
}
template <class I>
auto inspect(I& f, Quiesce&) {
  return f();
}
template <class I>
auto inspect(I& f, SaveSequenceState& x) {
  return f(x.seq);
}
template <class I>
auto inspect(I& f, SsmSnapshotSave& x) {
  return f(x.seq);
}
template <class I>
auto inspect(I& f, SsmSnapshotRestore& x) {
  return f(x.seq, x.snapshot);
}
template <class I>
auto inspect(I& f, SsmCheckpoint& x) {
  return f(x.seq);
}
template <class I>
auto inspect(I& f, Effect& x) {
  return inspect_variant(f, x);
}
template <class I>
auto inspect(I& f, EffectOutcome& x) {
  return f(x.blocks, x.fenced);
}

std::string label(const Effect& x);         // "Commit{s1.5, len=12}"
std::string label(const EffectOutcome& x);  // "outcome{blocks=1}"

}  // namespace troupe
