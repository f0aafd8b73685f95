// The LoRA controller: the registry of adapters (name, generation, slot, users), a FIFO of commands, and what every
// request is bound to (R9). Requests come from the dispatcher through here to the scheduler: one is bound to an adapter's
// generation for its whole life, and one that a command before it may concern waits for that command's outcome.
//
// A command runs alone. Reading and writing an adapter into memory that no step reads comes first; then the adapter that
// has to go must be without users: admission to it is closed from the moment the command began, so that its users only
// become fewer, and the wait is bounded (LoraCommand::max_wait, then fail or preempt). The router changes the table once
// nothing on the device names what goes. All other adapters and the base model are served meanwhile.
// An adapter is known by the command that loaded it, which is the same on every replica: a request that had output elsewhere
// is bound to what the same command loaded, or ends with adapter_gone.
// Loading a name again takes another slot and is a new generation; the old one retires with its last user.
//
// Invariants, after every message
//   - users of a slot = requests bound to its generation that have not ended;
//   - every slot of the model's memory is free, in the table, being loaded, or read for another replica;
//   - a command that failed has changed nothing.
// Bounded: `max_commands` wait; requests are bounded by the dispatcher's max_live.
//
// Deterministic; one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "actors/outbox.h"
#include "messages/protocol.h"

namespace troupe::actors {

enum class LoraPolicy : std::uint8_t {
  scoped,  // only what a command touches must be quiet
  global,  // nothing is admitted until every request has ended and the command is done
};

// Switches that break one rule each, for negative controls only.
enum class LoraFault : std::uint8_t {
  none,
  never_closes,     // R9: admission stays open, and the wait has no bound
  keep_generation,  // R9: an adapter has the generation of the one before it, and finds its prefix blocks
};

struct LoraConfig {
  TimeNs max_wait = 10'000'000'000;  // of a command that names none: from its start to the end of the last user
  TimeNs lease = 5'000'000'000;      // how long the scheduler holds users back, and how long the router has
  std::uint32_t max_commands = 16;   // that wait; beyond it: overloaded
  LoraPolicy policy = LoraPolicy::scoped;
  ReplicaRef replica{0, 1};  // what it tells the dispatcher it is
  bool movable = false;      // it also says what each request is bound to: another replica may have to go on with it
  LoraFault fault = LoraFault::none;
};

// Counted since start.
struct LoraStats {
  std::uint64_t bound = 0;    // requests, to an adapter
  std::uint64_t unknown = 0;  // requests that named none that is there
  std::uint64_t delayed = 0;  // requests that waited for a command's outcome
  std::uint64_t loaded = 0;
  std::uint64_t replaced = 0;  // of those: in the place of another adapter
  std::uint64_t retired = 0;   // of those: the name had an older generation
  std::uint64_t unloaded = 0;
  std::uint64_t rotated = 0;
  std::uint64_t waited = 0;     // commands that waited for users
  std::uint64_t preempted = 0;  // commands that took their users off the device
  std::uint64_t withdrawn = 0;
  std::uint64_t timed_out = 0;
  std::uint64_t failed = 0;  // with any error
};

using LoraOutbox = Outbox<Admit, CancelRequest, Drain, LoraAnswer, LoadAdapter, Lora, LoraHold, LoraResume, SetTimer, LoraBound,
                          ReadAdapter, AdapterFetched>;

class LoraCore {
 public:
  LoraCore(const LoraConfig& config, const ModelInfo& model);
  ~LoraCore();

  void on(const Admit& m, TimeNs now, LoraOutbox& out);          // goes on to the scheduler once it is bound
  void on(const CancelRequest& m, TimeNs now, LoraOutbox& out);  // likewise
  void on(const Drain& m, TimeNs now, LoraOutbox& out);          // likewise, after everything before it; later commands get `closed`
  void on(const Ended& m, TimeNs now, LoraOutbox& out);
  // Answered by one AdapterFetched: for another replica, from the model's memory, where it stays meanwhile. unknown_adapter.
  void on(const FetchAdapter& m, TimeNs now, LoraOutbox& out);
  void on(const AdapterRead& m, TimeNs now, LoraOutbox& out);
  // Answered by one LoraAnswer. bad_request, unknown_adapter, bad_adapter, rank_too_large, slot_in_use, timed_out,
  // no_such_peer, overloaded, closed.
  void on(const LoraSubmit& m, TimeNs now, LoraOutbox& out);
  void on(const AdapterLoaded& m, TimeNs now, LoraOutbox& out);
  void on(const LoraReply& m, TimeNs now, LoraOutbox& out);
  void on(const Tick& m, TimeNs now, LoraOutbox& out);

  std::uint32_t waiting() const;  // requests that wait for a command's outcome
  bool busy() const;              // a command runs or waits
  const LoraStats& stats() const;
  std::string check() const;  // as RouterCore::check

 private:
  struct State;
  std::unique_ptr<State> s_;
};

}  // namespace troupe::actors
