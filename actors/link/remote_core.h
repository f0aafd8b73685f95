// A replica on another machine, as the dispatcher's side sees it: what the dispatcher sends to a replica goes over a link to
// the node that has it, and what comes back is the dispatcher's and delivery's, with the number that the dispatcher knows the
// replica by.
//
// StartReplica connects; ReplicaUp comes once the node has given the replica to this runtime. A link that breaks, a node that
// falls silent and a node that says that the replica is lost are all ReplicaLost, once; from then on nothing of that incarnation
// is passed on, either way. A node is not asked to end what it computes for a link that is gone: it does by itself.
//
// Deterministic; the remote actor's thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "actors/link/liveness.h"
#include "actors/link/messages.h"
#include "actors/outbox.h"

namespace troupe::actors::link {

struct RemoteConfig {
  std::string name;           // "node-a:4100/0", for errors
  std::uint64_t owner = 0;    // this runtime's, drawn at its start
  std::uint32_t replica = 0;  // the node's number for it
  TimeNs heartbeat = 500'000'000;
  TimeNs silence = 3'000'000'000;
  TimeNs patience = 30'000'000'000;  // for the node to answer Hello: it may have steps of an earlier link to wait for
  std::optional<ModelInfo> model;    // must be the node's too; its token table is compared by `tokens`
  std::uint64_t tokens = 0;
};

// Of connections, by number: each is a new one.
struct Connect {
  std::uint32_t connection = 0;
};
struct Disconnect {
  std::uint32_t connection = 0;
  Error why;
};
struct Connected {
  std::uint32_t connection = 0;
};
struct Disconnected {
  std::uint32_t connection = 0;
  Error why;
};
struct Transmit {
  std::uint32_t connection = 0;
  LinkMessage message;
};

using RemoteOutbox = Outbox<Connect, Disconnect, Transmit, ReplicaUp, ReplicaDown, ReplicaLost, Deliver, Ended, CancelReply, Drained,
                            LoraAnswer, LoraBound, AdapterFetched, ReplicaReport, SetTimer>;

class RemoteCore {
 public:
  explicit RemoteCore(const RemoteConfig& config) : config_(config) {}

  // ---- the dispatcher
  void on(const StartReplica& m, TimeNs now, RemoteOutbox& out);
  void on(const StopReplica& m, TimeNs now, RemoteOutbox& out);
  // To the node, if it is for the incarnation that is up; else nothing: the dispatcher has heard, or will, that it is lost.
  void on(const Admit& m, TimeNs now, RemoteOutbox& out) { pass(m, now, out); }
  void on(const CancelRequest& m, TimeNs now, RemoteOutbox& out) { pass(m, now, out); }
  void on(const Drain& m, TimeNs now, RemoteOutbox& out) { pass(m, now, out); }
  void on(const LoraSubmit& m, TimeNs now, RemoteOutbox& out) { pass(m, now, out); }
  void on(const FetchAdapter& m, TimeNs now, RemoteOutbox& out) { pass(m, now, out); }
  void on(const AskReport& m, TimeNs now, RemoteOutbox& out) { pass(m, now, out); }

  // ---- the connection
  void on(const Connected& m, TimeNs now, RemoteOutbox& out);
  void on(const Disconnected& m, TimeNs now, RemoteOutbox& out);
  void on(std::uint32_t connection, LinkMessage&& m, TimeNs now, RemoteOutbox& out);
  void on(const Tick& m, TimeNs now, RemoteOutbox& out);

  bool up() const { return state_ == State::up; }

 private:
  enum class State : std::uint8_t { idle, connecting, greeting, up, lost };

  template <class M>
  void pass(const M& m, TimeNs now, RemoteOutbox& out) {
    if (state_ == State::up && m.replica == ref_) transmit(m, now, out);
  }
  template <class M>
  void transmit(const M& m, TimeNs now, RemoteOutbox& out) {
    live_.sent(now);
    out.push(Transmit{connection_, m});
  }
  void welcome(const Welcome& m, TimeNs now, RemoteOutbox& out);
  void lose(Error why, RemoteOutbox& out);

  RemoteConfig config_;
  State state_ = State::idle;
  ReplicaRef ref_;
  std::uint32_t connection_ = 0;  // of the last one that was made
  TimeNs until_ = 0;              // greeting: when patience ends
  Liveness live_;
};

}  // namespace troupe::actors::link
