#include "actors/stream/copy_actor.h"

#include <utility>

namespace troupe::actors {

CopyStreamShell::CopyStreamShell(caf::actor_config& config, std::shared_ptr<Counts> counts, device::Driver* driver,
                                 device::ModelDeviceFeed* model, std::uint32_t ring_slots, std::uint32_t places)
    : CopyStreamActor::base(config),
      driver_(*driver),
      announcer_(*driver),
      copies_(*driver, *model, counts, ring_slots, places),
      post_(Sender::copy_stream, counts) {
  keep_quiet(*this);
}

CopyStreamShell::behavior_type CopyStreamShell::make_behavior() {
  return {
      [this](const Attach& m) {
        peers_ = m.peers;
        copies_.attach(peers_->device);
      },
      [this](const AttachStream& m) { stream_ = m.stream; },
      [this](const CopyBlocks& m) {
        post_.handling(m, now_ns());
        const Result<void> bound = bound_ ? success() : driver_.bind_thread();
        bound_ = bound.has_value();
        post_.send(peers_->device, copies_.enqueue(m, stream_, bound, post_.cause(), announcer_), context());
      },
  };
}

}  // namespace troupe::actors
