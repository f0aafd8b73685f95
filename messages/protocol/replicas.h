// Replicas: dispatcher <-> schedulers, links and who makes them; what is asked and told about them. See protocol.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "messages/error.h"
#include "messages/facts.h"
#include "messages/ids.h"
#include "messages/trace_ctx.h"

namespace troupe {

enum class ReplicaState : std::uint8_t {
  starting,  // also: it is given the adapters
  up,
  draining,  // nothing more is placed there, and some requests run
  drained,
  lost,     // fenced; its requests are being moved, and it is stopped
  waiting,  // for its next start
  failed,   // given up: too many starts within the window
};
const char* name(ReplicaState state);

// To the dispatcher, from the scheduler (device_lost, a broken invariant), from a link whose node is gone, or from who saw an
// actor of it die: it does nothing more, and has ended none of its requests for that.
struct ReplicaLost {
  TraceCtx ctx;
  ReplicaRef replica;
  Error error;
};
struct AskReport {  // dispatcher -> scheduler; answered by ReplicaReport
  TraceCtx ctx;
  ReplicaRef replica;
};
struct ReplicaReport {
  TraceCtx ctx;
  ReplicaRef replica;
  DeviceFacts facts;
  std::uint32_t waiting = 0;  // requests
  std::uint32_t running = 0;
  std::uint32_t in_flight = 0;    // steps
  std::uint64_t steps = 0;        // launched since its start
  std::uint64_t steps_ahead = 0;  // of those: SchedulerStats::steps_ahead
  std::uint64_t settled = 0;      // steps; progress (R10) is that this grows while requests are there
  std::uint64_t tokens = 0;       // committed
  std::uint64_t outstanding = 0;  // positions still to be computed for its requests, at most
  TimeNs since_settled = 0;       // 0 = none yet
};
// dispatcher -> who makes replicas; answered by ReplicaUp, or by ReplicaDown with the reason. The first incarnation of each is
// started without being asked for.
struct StartReplica {
  TraceCtx ctx;
  ReplicaRef replica;
};
struct StopReplica {  // likewise; answered by ReplicaDown, once what it held is given back or given up
  TraceCtx ctx;
  ReplicaRef replica;
};
struct ReplicaUp {
  TraceCtx ctx;
  ReplicaRef replica;
  std::string arithmetic_id;  // ModelInfo's
};
struct ReplicaDown {
  TraceCtx ctx;
  ReplicaRef replica;
  Error error;  // why it could not be started, or what it did not give back; none: it was stopped
};
// runtime -> dispatcher: nothing more is placed on it. Answered by ReplicaAnswer once it has no request left; not_found, closed:
// it is given up.
struct DrainReplica {
  TraceCtx ctx;
  std::uint64_t id = 0;  // of the question, in the answer
  std::uint32_t index = 0;
};
struct UndrainReplica {  // runtime -> dispatcher: back into service; one that was given up is started again. Answered at once
  TraceCtx ctx;
  std::uint64_t id = 0;
  std::uint32_t index = 0;
};
struct ReplicaAnswer {
  TraceCtx ctx;
  std::uint64_t id = 0;
  std::uint32_t index = 0;
  Error error;
};
struct AskReplicas {  // runtime -> dispatcher; answered by ReplicaList with the newest reports, which this renews
  TraceCtx ctx;
  std::uint64_t id = 0;
};
struct ReplicaStatus {
  ReplicaRef replica;
  ReplicaState state = ReplicaState::starting;
  std::string name;  // "host:0", "cuda:1", "node-a/host:0"
  std::string arithmetic_id{};
  std::uint32_t live = 0;         // requests that the dispatcher has placed there
  std::uint64_t outstanding = 0;  // of those: prompt and output, at most
  ReplicaReport report{};         // its last one; `replica` of it is 0: none yet
  std::vector<std::string> adapters{};
  std::uint32_t tries = 0;  // restarts within the window
  Error error{};            // why it was lost last
};
struct ReplicaList {
  TraceCtx ctx;
  std::uint64_t id = 0;
  std::vector<ReplicaStatus> replicas;
  std::uint32_t waiting = 0;  // requests that are on no replica
};

template <class I>
auto inspect(I& f, ReplicaLost& x) {
  return f(x.ctx, x.replica, x.error);
}
template <class I>
auto inspect(I& f, AskReport& x) {
  return f(x.ctx, x.replica);
}
template <class I>
auto inspect(I& f, ReplicaReport& x) {
  return f(x.ctx, x.replica, x.facts, x.waiting, x.running, x.in_flight, x.steps, x.steps_ahead, x.settled, x.tokens, x.outstanding,
           x.since_settled);
}
template <class I>
auto inspect(I& f, StartReplica& x) {
  return f(x.ctx, x.replica);
}
template <class I>
auto inspect(I& f, StopReplica& x) {
  return f(x.ctx, x.replica);
}
template <class I>
auto inspect(I& f, ReplicaUp& x) {
  return f(x.ctx, x.replica, x.arithmetic_id);
}
template <class I>
auto inspect(I& f, ReplicaDown& x) {
  return f(x.ctx, x.replica, x.error);
}
template <class I>
auto inspect(I& f, DrainReplica& x) {
  return f(x.ctx, x.id, x.index);
}
template <class I>
auto inspect(I& f, UndrainReplica& x) {
  return f(x.ctx, x.id, x.index);
}
template <class I>
auto inspect(I& f, ReplicaAnswer& x) {
  return f(x.ctx, x.id, x.index, x.error);
}
template <class I>
auto inspect(I& f, AskReplicas& x) {
  return f(x.ctx, x.id);
}
template <class I>
auto inspect(I& f, ReplicaStatus& x) {
  return f(x.replica, x.state, x.name, x.arithmetic_id, x.live, x.outstanding, x.report, x.adapters, x.tries, x.error);
}
template <class I>
auto inspect(I& f, ReplicaList& x) {
  return f(x.ctx, x.id, x.replicas, x.waiting);
}

std::string label(const ReplicaLost& x);
std::string label(const AskReport& x);
std::string label(const ReplicaReport& x);
std::string label(const StartReplica& x);
std::string label(const StopReplica& x);
std::string label(const ReplicaUp& x);
std::string label(const ReplicaDown& x);
std::string label(const DrainReplica& x);
std::string label(const UndrainReplica& x);
std::string label(const ReplicaAnswer& x);
std::string label(const AskReplicas& x);
std::string label(const ReplicaStatus& x);  // "r0.1 host:0 up live=3"
std::string label(const ReplicaList& x);

}  // namespace troupe
