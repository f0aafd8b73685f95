#include "actors/stream/actor.h"

#include <utility>

namespace troupe::actors {

StreamShell::StreamShell(caf::actor_config& config, std::shared_ptr<Counts> counts, const StreamSetup& setup)
    : AtHome(config, counts->home),
      driver_(*setup.driver),
      model_(*setup.model),
      announcer_(driver_),
      steps_(driver_, model_, counts, 0, setup.ring_slots - setup.prefill_slots, setup.prefill_slots == 0),
      copies_(driver_, model_, counts, setup.ring_slots, setup.copy_places),
      post_(Sender::stream, counts) {
  keep_quiet(*this);
}

StreamShell::behavior_type StreamShell::make_behavior() {
  return {
      [this](const Attach& m) {
        peers_ = m.peers;
        steps_.attach(peers_->device);
        copies_.attach(peers_->device);
      },
      [this](const AttachStream& m) {
        steps_.attach(m.stream, m.cells);
        (void)steps_.bind();  // an error comes back with the first step
      },
      [this](const Enqueue& m) {
        post_.handling(m, now_ns());
        post_.send(peers_->device, steps_.enqueue(m, post_.cause(), announcer_), context());
      },
      [this](const ChangeTable& m) { change(m); },
      [this](const CopyBlocks& m) { enqueue(m); },
      [this](const RecordEvent& m) { record(m); },
      [this](const StopDevice&) {
        steps_.settle_all();
        return Done{};
      },
  };
}

// No step in flight names either slot (R9). If the new one cannot be shown, the old one stays.
void StreamShell::change(const ChangeTable& m) {
  post_.handling(m, now_ns());
  TableChanged done;
  Result<void> changed = success();
  if (m.show.slot != 0) changed = model_.show_adapter(m.show.slot);
  if (changed && m.hide.slot != 0) changed = model_.hide_adapter(m.hide.slot);
  if (!changed) done.error = changed.error();
  post_.send(peers_->router, std::move(done), context());
}

void StreamShell::enqueue(const CopyBlocks& m) {
  post_.handling(m, now_ns());
  post_.send(peers_->device, copies_.enqueue(m, steps_.stream(), steps_.bind(), post_.cause(), announcer_), context());
}

void StreamShell::record(const RecordEvent& m) {
  post_.handling(m, now_ns());
  EventRecorded recorded;
  recorded.mark = m.mark;
  recorded.place = m.place;
  Result<void> done = steps_.bind();
  if (done) done = driver_.record_event(m.event, steps_.stream());
  if (!done) recorded.error = done.error();
  post_.send(peers_->router, std::move(recorded), context());
}

// The slots keep their hold on the device actor: a thread of the driver may still be about to use it.
void StreamShell::on_exit() { peers_.reset(); }

}  // namespace troupe::actors
