#include "actors/scheduler/actor.h"

namespace troupe::actors {

SchedulerShell::behavior_type SchedulerShell::make_behavior() {
  return {
      [this](const Attach& m) { peers_ = m.peers; },
      [this](const Admit& m) {
        if (core_.running() + core_.waiting() == 0) busy_since_ = now_ns();
        handle(this, m);
      },
      [this](const CancelRequest& m) { handle(this, m); },
      [this](const Opened& m) { handle(this, m); },
      [this](const Saved& m) { handle(this, m); },
      [this](const Accepted& m) { handle(this, m); },
      [this](const Settled& m) { handle(this, m); },
      [this](const Sampled& m) { handle(this, m); },
      [this](const Applied& m) { handle(this, m); },
      [this](const Tick& m) {
        if (timer_.due(now_ns(), *this, post_)) handle(this, m);
      },
      [this](const Drain& m) { handle(this, m); },
      [this](const Halt& m) { handle(this, m); },
      [this](const AskReport& m) { handle(this, m); },
      [this](const LoraHold& m) { handle(this, m); },
      [this](const LoraResume& m) { handle(this, m); },
      [this](const Ask&) {
        return SchedulerFigures{core_.stats(), core_.waiting(), core_.running(), core_.in_flight(), core_.last_settled(), busy_since_};
      },
  };
}

}  // namespace troupe::actors
