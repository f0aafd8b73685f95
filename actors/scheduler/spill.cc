// A preempted request whose state is saved: it waits as any other, and is opened from what was saved. Whatever goes wrong
// on the way, it is computed again.
#include <algorithm>

#include "actors/scheduler/state.h"

namespace troupe::actors {

// The last known position is computed once more after a restore, if it was settled. With a window it may read a block that went
// back when it was, and with recurrent layers the state before it is not saved: so then it must not have been.
bool SchedulerCore::State::may_spill(const Live& r) const {
  const std::uint32_t full = r.settled / model.block_size - model.blocks_behind(r.settled);
  return saves + restores < config.spill_places && full > config.spill_min_blocks &&
         ((model.window == 0 && !model.has_ssm_layers) || r.settled < r.known());
}

void SchedulerCore::State::spill(Live& r) {
  ++stats.spills;
  ++saves;
  effects.push_back(SaveSequenceState{r.seq});
  r.saved = r.seq;
  r.saved_len = r.settled;
  r.saving = true;
}

// The request ends. What is being saved is dropped when it has been, what is being read is gone by then.
void SchedulerCore::State::forget_saved(Live& r) {
  if (r.saved.incarnation == 0) return;
  if (r.phase == Live::Phase::opening) return ++stats.ended_restoring, void();
  if (r.saving) return ++stats.ended_saving, void();
  ++stats.spills_dropped;
  drops.push_back(r.saved);
}

void SchedulerCore::on(const Saved& m, TimeNs now, SchedulerOutbox& out) {
  State& s = *s_;
  if (s.left) return;
  s.facts = m.facts;
  if (s.saves > 0) --s.saves;
  Live* r = s.find(m.request);
  const bool ours = r != nullptr && r->saving && r->saved == m.seq;
  if (m.error.code != ErrorCode::none) {
    ++s.stats.spill_failures;
    if (ours) r->saved = {};
    if (m.error.code == ErrorCode::device_lost || m.error.code == ErrorCode::closed) s.halt(m.error);
  } else if (!ours) {
    s.drops.push_back(m.seq);
  }
  if (ours) r->saving = false;
  s.unblock();
  s.advance(now, out);
}

// An Open that named a saved state gave a sequence: with what was saved in it, or empty.
void SchedulerCore::State::opened_from_file(Live* r, const Opened& m) {
  if (restores > 0) --restores;
  ++(m.restored ? stats.restores : stats.restore_failures);
  if (r != nullptr) r->saved = {};
}

// Its file is untouched. The request waits for blocks if some can come, and is computed again if not.
void SchedulerCore::State::restore_refused(Live* r, const Opened& m) {
  if (restores > 0) --restores;
  if (r == nullptr) return drops.push_back(m.restore);
  if (m.error.code == ErrorCode::slot_exhausted) return;
  if (something_moves()) {
    restore_waits = true;
    return;
  }
  ++stats.restore_failures;
  drops.push_back(r->saved);
  r->saved = {};
}

// Whether an answer is on its way after which there may be more free blocks.
bool SchedulerCore::State::something_moves() const {
  return in_flight() > 0 || unanswered || applying > 0 || saves + restores > 0 || !effects.empty() ||
         std::any_of(running.begin(), running.end(), [&](std::uint32_t i) { return !live[i].kv_blocked; });
}

// Something settled: who sat out for want of blocks may try again.
void SchedulerCore::State::unblock() {
  restore_waits = false;
  for (const std::uint32_t i : running) live[i].kv_blocked = false;
}

}  // namespace troupe::actors
