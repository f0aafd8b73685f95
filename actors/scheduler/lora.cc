// Holding the users of an adapter off the device while a LoRA command takes it away (R9).
#include "actors/scheduler/state.h"

namespace troupe::actors {

void SchedulerCore::State::arm(TimeNs at, SchedulerOutbox& out) {
  if (timer != 0 && timer <= at) return;
  timer = at;
  out.push(SetTimer{at});
}

// Those that are being opened are preempted when their answer comes.
void SchedulerCore::State::preempt_held() {
  for (Live& r : live)
    if (r.phase == Live::Phase::running && is_held(r)) preempt(r);
}

void SchedulerCore::on(const LoraHold& m, TimeNs now, SchedulerOutbox& out) {
  State& s = *s_;
  if (s.left) return;
  s.held = m.adapter;
  s.held_until = m.until;
  s.arm(m.until, out);
  s.preempt_held();
  s.advance(now, out);
}

void SchedulerCore::on(const LoraResume& m, TimeNs now, SchedulerOutbox& out) {
  State& s = *s_;
  if (s.left) return;
  if (s.held == m.adapter) s.held = {};
  if (m.gone) {
    for (Live& r : s.live) {
      if (r.phase != Live::Phase::unused && m.adapter.slot != 0 && r.adapter == m.adapter)
        s.finish(r, FinishReason::error, Error{ErrorCode::adapter_gone, "the adapter that the request was bound to was taken away"});
    }
  }
  s.advance(now, out);
}

}  // namespace troupe::actors
