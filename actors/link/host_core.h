// A replica of a node, as the node's side of links sees it: one runtime at a time has it. What that runtime sends goes to the
// replica, and what the replica says goes to that runtime, as a dispatcher's and delivery's would.
//
// The replica outlives links: when one is gone (broken, silent, or the runtime comes again with a higher incarnation), all its
// requests are cancelled, and the next runtime gets the replica when the last of them has ended and every question has its
// answer; so nothing of an earlier link is ever sent over a later one. KV blocks that are cached, and adapters, stay.
//
// A request is validated here as a dispatcher does; a runtime that sends what no dispatcher would is refused the rest.
//
// Another runtime is refused while the first one's link lives. A Drain ends with the last request and does not reach the
// replica, which would take nothing more afterwards.
//
// Deterministic; the host actor's thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "actors/link/liveness.h"
#include "actors/link/remote_core.h"
#include "actors/outbox.h"

namespace troupe::actors::link {

struct HostConfig {
  std::string node;                     // its name, for people
  std::vector<std::string> replicas{};  // the names of all that the node has
  std::uint32_t max_live = 1024;        // requests of one runtime
  ReplicaRef ref{0, 1};                 // as the replica's own actors know it
  ModelInfo model;
  std::uint64_t tokens = 0;
  TimeNs longest_silence = 60'000'000'000;  // what a runtime may ask for
};

// Ended is for the LoRA controller, as a dispatcher sends it.
using HostOutbox =
    Outbox<Disconnect, Transmit, Admit, CancelRequest, LoraSubmit, FetchAdapter, AskReport, Ended, StopReplica, StartReplica, SetTimer>;

class HostCore {
 public:
  // What the node says of itself.
  static Welcome welcome(const HostConfig& config);

  // The replica is there already.
  explicit HostCore(const HostConfig& config) : config_(config) {}

  // ---- connections; the first message of each is Hello
  void on(std::uint32_t connection, LinkMessage&& m, TimeNs now, HostOutbox& out);
  void on(const Disconnected& m, TimeNs now, HostOutbox& out);
  void on(const Tick& m, TimeNs now, HostOutbox& out);

  // ---- the replica
  void on(const Deliver& m, TimeNs now, HostOutbox& out) { say(m, now, out); }
  void on(const Ended& m, TimeNs now, HostOutbox& out);
  void on(const LoraBound& m, TimeNs now, HostOutbox& out) { say(m, now, out); }
  void on(const CancelReply& m, TimeNs now, HostOutbox& out) { answer(m, now, out); }
  void on(const LoraAnswer& m, TimeNs now, HostOutbox& out) { answer(m, now, out); }
  void on(const AdapterFetched& m, TimeNs now, HostOutbox& out) { answer(m, now, out); }
  void on(const ReplicaReport& m, TimeNs now, HostOutbox& out) { answer(m, now, out); }
  void on(const ReplicaLost& m, TimeNs now, HostOutbox& out);
  void on(const ReplicaUp& m, TimeNs now, HostOutbox& out);
  void on(const ReplicaDown& m, TimeNs now, HostOutbox& out);

  std::size_t live() const { return live_requests_.size(); }
  bool held() const { return holder_.has_value(); }

 private:
  struct Holder {
    std::uint32_t connection = 0;
    Hello hello;
    Liveness live;
    bool welcomed = false;
    bool draining = false;
  };

  template <class M>
  void say(const M& m, TimeNs now, HostOutbox& out) {
    if (!holder_ || !holder_->welcomed) return;
    holder_->live.sent(now);
    out.push(Transmit{holder_->connection, m});
  }
  template <class M>
  void answer(const M& m, TimeNs now, HostOutbox& out) {
    if (owed_ > 0) --owed_;
    say(m, now, out);
    settle(now, out);
  }
  void greet(std::uint32_t connection, const Hello& m, TimeNs now, HostOutbox& out);
  void admit(Admit&& m, TimeNs now, HostOutbox& out);
  Error fault(const Admit& m) const;
  template <class M>
  bool refuses(const M& m, TimeNs now, HostOutbox& out);
  void refuse(std::uint32_t connection, Error why, HostOutbox& out);
  void release(HostOutbox& out);
  void settle(TimeNs now, HostOutbox& out);
  void start(HostOutbox& out);

  HostConfig config_;
  std::optional<Holder> holder_;
  std::map<RequestId, std::uint32_t> live_requests_;  // the attempt; of the holder, or, while it is not welcomed, of those before
  std::uint64_t owed_ = 0;                            // answers of the replica: to cancels, LoRA commands and the like
  enum class Replica : std::uint8_t { up, stopping, starting, down } replica_ = Replica::up;
};

}  // namespace troupe::actors::link
