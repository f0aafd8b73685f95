// The dispatcher core's books. Included by its .cc files only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "actors/dispatcher/core.h"

namespace troupe::actors {

struct DispatcherCore::State {
  State(const DispatcherConfig& config, const ModelInfo& model);

  // A request from its acceptance to its end.
  struct Entry {
    enum class Where : std::uint8_t { queued, placed, ending, reclaiming };
    RequestId id;
    Where where = Where::queued;
    std::uint32_t replica = 0;  // placed, ending: index
    std::uint32_t attempt = 0;
    std::uint32_t moves = 0;  // in a row, in which it got no token
    Shared<Request> request;
    std::uint64_t seed = 0;
    TimeNs submitted = 0;
    TimeNs deadline = 0;        // absolute; 0 = none
    std::vector<Token> output;  // of earlier attempts
    std::uint64_t cost = 0;     // to its replica
    std::string arithmetic;     // of the replica that it is on, or was on last
    bool other_arithmetic = false;
    std::optional<std::uint64_t> command{};  // LoraBound
    std::uint64_t after = 0;                 // the last LoRA command before it that concerns it
    Placement::Prefix prefix;
    std::uint32_t cancels = 0;  // that wait for it to be reclaimed
    bool cancelled = false;     // ending: its client was told so
    Error error{};              // of the replica that it was on last
  };

  struct Replica {
    explicit Replica(const SupervisionConfig& c) : restarts(c) {}
    ReplicaRef ref;
    std::string name;
    std::uint32_t weight = 1;
    ReplicaState state = ReplicaState::starting;
    std::string arithmetic;
    std::uint32_t live = 0;
    std::uint64_t outstanding = 0;
    std::uint32_t ending = 0;
    bool drain = false;                 // nothing more is placed there, whatever its state
    std::vector<std::uint64_t> drains;  // DrainReplica that wait for it
    Error error;
    Restarts restarts;
    TimeNs since = 0;  // starting: when that began; waiting: when it is to begin
    // Supervision
    ReplicaReport report;
    TimeNs asked = 0;      // AskReport that was not answered; 0 = none
    bool watched = false;  // it has something to do
    TimeNs next_ask = 0;
    TimeNs progress = 0;  // when it was last known to get on
    std::uint64_t settled = 0;
    bool drained = false;  // the runtime's Drain was answered
    // Adapters
    std::map<std::string, std::uint64_t> adapters;  // name -> command that loaded it
    std::uint64_t lora_seen = 0;                    // the newest command that it was sent, or passed over for
    std::uint64_t replaying = 0;                    // starting: the command whose answer is awaited
    std::string replaying_name;
    std::uint64_t replayed = 0;  // version of the registry that it has been given
    std::string standard;        // as State::standard

    void drop(const std::string& adapter) {
      if (adapter == standard) standard.clear();
      adapters.erase(adapter);
    }
    bool serves() const { return state == ReplicaState::up || state == ReplicaState::draining || state == ReplicaState::drained; }
    bool comes() const { return state == ReplicaState::starting || state == ReplicaState::lost || state == ReplicaState::waiting; }
  };

  struct Loaded {
    std::uint64_t id = 0;
    std::uint64_t version = 0;
    LoraCommand command;
  };
  struct Undo {
    std::uint32_t replica = 0;
    std::uint64_t id = 0;
    LoraCommand command;
  };
  // A command on its way over the replicas.
  struct Roll {
    std::uint64_t id = 0;
    LoraCommand command;
    std::vector<bool> covered{};            // by replica: it was sent there, or is of no concern to it
    std::optional<std::uint32_t> at{};      // whose answer is awaited
    std::uint64_t sent = 0;                 // LoraSubmit::id of that
    std::uint64_t as = 0;                   // what it loads is known by this: `id`, or what the peer knows it by
    std::optional<std::uint32_t> source{};  // promote: who has it; until it was fetched
    Shared<AdapterImage> image{};
    std::string path{};  // of what it loads
    LoraAck ack{};       // of the last that did it
    Error error{};       // the first
    std::vector<LoraOutcome> outcomes{};
    // Of the replica, as it is now; what was said of an earlier life of it is forgotten.
    LoraOutcome& outcome_of(const Replica& r) {
      auto it = std::find_if(outcomes.begin(), outcomes.end(), [&](const LoraOutcome& o) { return o.replica.index == r.ref.index; });
      LoraOutcome& o = it != outcomes.end() ? *it : outcomes.emplace_back();
      o = {};
      o.replica = r.ref;
      o.name = r.name;
      return o;
    }
    bool begun = false;
    std::map<std::string, Loaded> before{};  // the registry
    std::string before_standard{};
    std::vector<Undo> undo{};  // what puts back what was done
    bool undoing = false;
    LoraCommand undo_command{};  // whose answer is awaited
  };

  const DispatcherConfig config;
  const ModelInfo model;
  const bool lone;  // one replica, not watched
  Placement placement;
  std::vector<Replica> replicas;
  std::uint64_t generation = 0;                           // of the last accepted request
  std::unordered_map<std::uint64_t, std::uint64_t> live;  // client -> generation, of those that are not ending; looked up, never walked
  // client, generation: of those that were ending, and live again since their replica was lost, while a newer one has their client's id
  std::set<std::pair<std::uint64_t, std::uint64_t>> displaced;
  std::map<std::uint64_t, Entry> requests;  // by generation
  std::deque<std::uint64_t> queue;          // generations; those that were moved first
  std::uint32_t reclaiming = 0;
  std::vector<std::pair<RequestId, ReplicaRef>> cancels;  // CancelRequest that were not answered
  std::deque<std::uint64_t> ended;                        // clients whose last request has ended; at most max_live
  std::unordered_set<std::uint64_t> ended_set;
  TimeNs last_end = 0;  // when requests ended last, or the first was accepted
  TimeNs pace = 0;      // between two ends: of the last few, the recent ones more
  bool draining = false;
  bool drain_sent = false;  // to the replicas
  bool drained = false;
  TimeNs armed = 0;
  std::vector<Finish> finishes;  // of the handler that runs
  std::string finish_text;
  // Adapters
  std::deque<Roll> rolls;   // the first one runs
  std::vector<Roll> lists;  // run at once
  std::map<std::string, Loaded> registry;
  std::uint64_t version = 0;                   // of the registry
  std::map<std::uint64_t, std::string> paths;  // command -> what it loaded; of those that some replica, or the registry, still has
  std::string standard;                        // of requests that name none
  std::uint64_t rotated = 0;                   // the command that made it so
  std::uint64_t newest = 0;                    // command that was accepted
  std::uint64_t newest_rotate = 0;
  std::map<std::string, std::uint64_t> newest_of;  // by name: the newest that may change it
  std::uint64_t newest_any = 0;                    // that may change any name: into a slot
  std::uint64_t passed = 0;                        // the newest that is done
  DispatcherStats stats;

  // core.cc
  void keep_pace(TimeNs now, std::size_t n);
  TimeNs retry_after(TimeNs now) const;
  void forget_ended(std::uint64_t client);
  void remember_ended(std::uint64_t client);
  SubmitReply submit(const Submit& m, TimeNs now, DispatcherOutbox& out);
  void forget(std::map<std::uint64_t, Entry>::iterator it);
  void free_client(const RequestId& id);       // it may come again
  void take_client_back(const RequestId& id);  // the request lives again
  // On no replica: its terminal event comes from here.
  void end(Entry& e, FinishReason reason, Error error = {});
  void answer_cancels(const Entry& e, CancelOutcome outcome, DispatcherOutbox& out);
  void drain_on(DispatcherOutbox& out);

  // replicas.cc
  Replica* current(const ReplicaRef& ref);  // null: fenced, or none of ours
  bool any_comes() const;
  bool place(Entry& e, TimeNs now, DispatcherOutbox& out);
  bool eligible(const Replica& r, const Entry& e) const;
  void lose(Replica& r, Error error, TimeNs now, DispatcherOutbox& out);
  void schedule(Replica& r, TimeNs now);
  void go_up(Replica& r, TimeNs now);
  void leave(Entry& e);  // its replica
  bool busy(const Replica& r) const;
  void watch(TimeNs now, DispatcherOutbox& out);
  void settle_drains(Replica& r, DispatcherOutbox& out);
  // What every handler ends with: who can be placed is placed, who can never be is ended, the timer is set.
  void pump(TimeNs now, DispatcherOutbox& out);
  void arm(TimeNs now, DispatcherOutbox& out);
  ReplicaStatus status(const Replica& r) const;

  // lora_roll.cc
  std::uint64_t concerns(const Request& request) const;
  void roll_on(TimeNs now, DispatcherOutbox& out);
  bool step(Roll& roll, DispatcherOutbox& out);  // whether it is done
  void answered(Roll& roll, const LoraAnswer& m);
  void finish_roll(Roll& roll, DispatcherOutbox& out);
  void did(Replica& r, const Roll& roll, const LoraAck& ack, std::vector<Undo>& undo);
  void replay(Replica& r, TimeNs now, DispatcherOutbox& out);
  void lost_in_roll(const Replica& r);
};

}  // namespace troupe::actors
