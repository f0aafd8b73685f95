// The dispatcher: request identity (generations), admission limits, which requests are live and where, and the replicas:
// placement, supervision, moving requests off one that was lost, commands for the adapters of all of them.
//
// It decides what counts: a replica that is lost is fenced at once, and whatever still comes from it is counted and dropped.
// Its requests are reclaimed from delivery (actors/delivery/core.h), which knows what their clients have; then they are
// placed again, with that as their output so far, or wait here until a replica is there for them, until their deadline, or
// until no replica can come back.
//
// Without replicas in its configuration it has one, which is there from the start and is neither watched nor restarted.
//
// Invariants, after every message
//   - a live request is in one place: queued here, placed on a replica that is not fenced, ending (that replica says it is over
//     and delivery has not said so yet; its client id may come again), or being reclaimed;
//   - outstanding work of a replica = the sum over the requests that are placed on it;
//   - nothing is sent to a replica that is fenced.
// Bounded: max_live requests, max_commands LoRA commands; per replica max_drains questions and the remembered prefixes.
//
// Deterministic; one thread at a time (the dispatcher actor's).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "actors/dispatcher/placement.h"
#include "actors/dispatcher/supervision.h"
#include "actors/outbox.h"
#include "messages/protocol.h"

namespace troupe::actors {

// Switches that break one rule each, for negative controls only.
enum class DispatcherFault : std::uint8_t {
  none,
  resend_all,       // R5: a moved request starts from its first token again
  route_to_fenced,  // R5: requests are placed on replicas that are lost
};

struct ReplicaSetup {
  std::string name;          // "host:0"
  std::uint32_t weight = 1;  // how much work it does in the time in which one of weight 1 does one
  bool remote = false;       // on another machine: tried again for as long as it takes
};

struct DispatcherConfig {
  std::uint32_t max_live = 1024;         // accepted and not ended; beyond it: overloaded
  std::vector<ReplicaSetup> replicas{};  // each `starting` until its ReplicaUp; empty: one, as above
  PlacementConfig placement{};
  SupervisionConfig supervision{};
  std::uint32_t max_moves = 8;      // of a request in a row without a token; then it ends with the error of the replica that it was on last
  std::uint32_t max_commands = 16;  // LoRA commands that wait; beyond it: overloaded
  std::uint32_t max_drains = 16;    // DrainReplica that wait for one replica; beyond it: overloaded
  DispatcherFault fault = DispatcherFault::none;
};

// Counted since start.
struct DispatcherStats {
  std::uint64_t lost = 0;      // replicas, each time
  std::uint64_t silent = 0;    // of those: no report
  std::uint64_t stuck = 0;     // of those: reports, and no progress
  std::uint64_t started = 0;   // asked for
  std::uint64_t given_up = 0;  // replicas
  std::uint64_t moved = 0;     // requests that were placed again
  std::uint64_t moved_with_output = 0;
  std::uint64_t ended_when_reclaimed = 0;  // their client had had the end
  std::uint64_t ended_here = 0;            // by deadline, cancel or error, on no replica
  std::uint64_t queued = 0;                // that no replica was there for, at first
  std::uint64_t unavailable = 0;           // refused
  std::uint64_t late = 0;                  // messages of fenced replicas
  std::uint64_t rolled = 0;                // LoRA commands that went over several replicas
  std::uint64_t undone = 0;                // of those: rolled back
  std::uint64_t replayed = 0;              // adapters that a started replica was given
};

using DispatcherOutbox = Outbox<SubmitReply, Admit, CancelRequest, CancelReply, Drain, Drained, Ended, LoraSubmit, LoraAnswer, Reclaim,
                                EndRequests, AskReport, StartReplica, StopReplica, ReplicaAnswer, ReplicaList, FetchAdapter, SetTimer>;

// The first limit of the model that the request breaks, as bad_request with what to change; code none = fine.
Error validate(const Request& request, const ModelInfo& model);

class DispatcherCore {
 public:
  DispatcherCore(const DispatcherConfig& config, const ModelInfo& model);
  ~DispatcherCore();

  // Answers with exactly one SubmitReply, in the same call. overloaded says when to try again: about when some request
  // will have ended, by the pace at which the last ones did. unavailable: no replica takes requests, and none is about to.
  void on(const Submit& m, TimeNs now, DispatcherOutbox& out);
  // Answers with a CancelReply, now (not_found, already_finished, or the request was here) or when the scheduler has answered.
  void on(const Cancel& m, TimeNs now, DispatcherOutbox& out);
  void on(const CancelReply& m, TimeNs now, DispatcherOutbox& out);
  void on(const Ended& m, TimeNs now, DispatcherOutbox& out);
  void on(const Drain& m, TimeNs now, DispatcherOutbox& out);
  void on(const Drained& m, TimeNs now, DispatcherOutbox& out);
  // Goes to the LoRA controllers, in order with the submissions: a request that comes after it sees its outcome. Of several
  // replicas one after the other. unsupported: the model has no adapter slots; overloaded, closed, not_found (the replica).
  void on(const LoraSubmit& m, TimeNs now, DispatcherOutbox& out);
  void on(const LoraAnswer& m, TimeNs now, DispatcherOutbox& out);
  void on(const LoraBound& m, TimeNs now, DispatcherOutbox& out);
  void on(const AdapterFetched& m, TimeNs now, DispatcherOutbox& out);

  void on(const ReplicaUp& m, TimeNs now, DispatcherOutbox& out);
  void on(const ReplicaDown& m, TimeNs now, DispatcherOutbox& out);
  void on(const ReplicaLost& m, TimeNs now, DispatcherOutbox& out);
  void on(const ReplicaReport& m, TimeNs now, DispatcherOutbox& out);
  void on(const Reclaimed& m, TimeNs now, DispatcherOutbox& out);
  void on(const Delivered& m, TimeNs now, DispatcherOutbox& out);
  void on(const DrainReplica& m, TimeNs now, DispatcherOutbox& out);
  void on(const UndrainReplica& m, TimeNs now, DispatcherOutbox& out);
  void on(const AskReplicas& m, TimeNs now, DispatcherOutbox& out);
  void on(const Tick& m, TimeNs now, DispatcherOutbox& out);

  std::uint32_t live() const;
  std::uint32_t waiting() const;  // live and on no replica
  std::vector<ReplicaStatus> replicas() const;
  const DispatcherStats& stats() const;
  std::string check() const;  // as RouterCore::check

 private:
  struct State;
  std::unique_ptr<State> s_;
};

}  // namespace troupe::actors
