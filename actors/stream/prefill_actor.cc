#include "actors/stream/prefill_actor.h"

#include <utility>

namespace troupe::actors {

PrefillStreamShell::PrefillStreamShell(caf::actor_config& config, std::shared_ptr<Counts> counts, device::Driver* driver,
                                       device::ModelDeviceFeed* feed, std::uint32_t ring_slots, std::uint32_t prefill_slots)
    : AtHome(config, counts->home),
      announcer_(*driver),
      steps_(*driver, *feed, counts, ring_slots - prefill_slots, prefill_slots, false),
      post_(Sender::prefill_stream, counts) {
  keep_quiet(*this);
}

PrefillStreamShell::behavior_type PrefillStreamShell::make_behavior() {
  return {
      [this](const Attach& m) {
        peers_ = m.peers;
        steps_.attach(peers_->device);
      },
      [this](const AttachStream& m) {
        steps_.attach(m.stream, m.cells);
        (void)steps_.bind();  // an error comes back with the first step
      },
      [this](const Enqueue& m) {
        post_.handling(m, now_ns());
        post_.send(peers_->device, steps_.enqueue(m, post_.cause(), announcer_), context());
      },
      [this](const StopDevice&) {
        steps_.settle_all();
        return Done{};
      },
  };
}

}  // namespace troupe::actors
