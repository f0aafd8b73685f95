#include "actors/link/host.h"

#include <algorithm>

namespace troupe::actors::link {

HostShell::behavior_type HostShell::make_behavior() {
  set_down_handler([this](caf::scheduled_actor*, caf::down_msg& m) { down(m); });
  return {
      [this](const Deliver& m) { handle(this, m); },
      [this](const Ended& m) { handle(this, m); },
      [this](const CancelReply& m) { handle(this, m); },
      [](const Drained&) {},  // the replica is never asked to
      [this](const LoraAnswer& m) { handle(this, m); },
      [this](const LoraBound& m) { handle(this, m); },
      [this](const AdapterFetched& m) { handle(this, m); },
      [this](const ReplicaLost& m) { handle(this, m); },
      [this](const ReplicaReport& m) { handle(this, m); },
      [this](const KeptBy& m) { keeper_ = m.keeper; },
      [this](const Joined& m) { join(m); },
      [this](const ReplicaDown& m) { handle(this, m); },
      [this](const LinkUp& m) { wires_.add(m); },
      [this](const LinkSaid& m) {
        post_.caused_by(0);
        core_.on(m.number, LinkMessage(m.message), now_ns(), out_);
        send_all(this);
        wires_.taken(m);
      },
      [this](const LinkDown& m) {
        wires_.remove(m.number);
        post_.caused_by(0);
        core_.on(Disconnected{m.number, m.why}, now_ns(), out_);
        send_all(this);
      },
      [this](const Tick& m) {
        if (timer_.due(now_ns(), *this, post_)) handle(this, m);
      },
  };
}

void HostShell::join(const Joined& m) {
  doors_ = m.doors;
  watched_.clear();
  for (const caf::strong_actor_ptr& actor : m.watch) {
    watched_.push_back(caf::actor_cast<caf::actor_addr>(actor));
    monitor(watched_.back());
  }
  ref_ = m.up.replica;
  handle(this, m.up);
}

void HostShell::down(const caf::down_msg& m) {
  if (std::find(watched_.begin(), watched_.end(), m.source) == watched_.end()) return;  // of an earlier life
  post_.caused_by(0);
  core_.on(ReplicaLost{{}, ref_, {ErrorCode::internal, "an actor of the replica died (" + caf::to_string(m.reason) + ")"}}, now_ns(), out_);
  send_all(this);
}

void HostShell::put(Transmit&& m) {
  if (auto* fetched = std::get_if<AdapterFetched>(&m.message); fetched != nullptr && !fits(fetched->image)) {
    fetched->image = {};
    fetched->error = {ErrorCode::unsupported, "the adapter is too large for a link: load it from a folder"};
  }
  wires_.transmit(m);
}

void HostShell::on_exit() {
  wires_.say_to_all(Refused{{ErrorCode::closed, "the node stops"}});
  wires_.close_all({ErrorCode::closed, "the node stops"});
  doors_ = {};
  keeper_ = MakerDoor{};
  Shell::on_exit();
}

}  // namespace troupe::actors::link
