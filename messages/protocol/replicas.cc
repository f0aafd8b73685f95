#include "messages/protocol/replicas.h"

#include <fmt/format.h>

#include "messages/protocol/text.h"

namespace troupe {

using namespace protocol_text;

const char* name(ReplicaState state) {
  switch (state) {
    case ReplicaState::starting:
      return "starting";
    case ReplicaState::up:
      return "up";
    case ReplicaState::draining:
      return "draining";
    case ReplicaState::drained:
      return "drained";
    case ReplicaState::lost:
      return "lost";
    case ReplicaState::waiting:
      return "waiting";
    case ReplicaState::failed:
      return "failed";
  }
  return "?";
}

std::string label(const ReplicaLost& x) { return or_error("ReplicaLost " + label(x.replica), x.error, "?"); }
std::string label(const AskReport& x) { return "AskReport " + label(x.replica); }
std::string label(const ReplicaReport& x) {
  return fmt::format("ReplicaReport {} waiting={} running={} settled={}", label(x.replica), x.waiting, x.running, x.settled);
}
std::string label(const StartReplica& x) { return "StartReplica " + label(x.replica); }
std::string label(const StopReplica& x) { return "StopReplica " + label(x.replica); }
std::string label(const ReplicaUp& x) { return "ReplicaUp " + label(x.replica); }
std::string label(const ReplicaDown& x) { return or_error("ReplicaDown " + label(x.replica), x.error, "ok"); }
std::string label(const DrainReplica& x) { return fmt::format("DrainReplica r{}", x.index); }
std::string label(const UndrainReplica& x) { return fmt::format("UndrainReplica r{}", x.index); }
std::string label(const ReplicaAnswer& x) { return or_error(fmt::format("ReplicaAnswer r{}", x.index), x.error, "ok"); }
std::string label(const AskReplicas&) { return "AskReplicas"; }
std::string label(const ReplicaStatus& x) { return fmt::format("{} {} {} live={}", label(x.replica), x.name, name(x.state), x.live); }
std::string label(const ReplicaList& x) { return fmt::format("ReplicaList{{n={}, waiting={}}}", x.replicas.size(), x.waiting); }

}  // namespace troupe
