// The router: owns tickets, every sequence's device bookkeeping, the KV block pool, the reservation ledger and the
// ring slots of one device, and turns the scheduler's plans into steps for the stream actor (DESIGN §2, §5.1).
//
// Invariants, after every message
//   - every block is in exactly one class: free + used + cached + fenced == total (R8);
//   - settled_len <= launched_len <= what the block table of a live sequence covers;
//   - a block, a slot or a ring slot returns only when no open ticket names it (R3, R4).
//
// Deterministic: no clock, no thread, no driver. One thread at a time (the router actor's).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "actors/outbox.h"
#include "messages/protocol.h"

namespace troupe::actors {

struct RouterConfig {
  std::uint32_t incarnation = 1;
  std::uint32_t depth = 2;  // most steps in flight, cut to ModelInfo::max_depth; ring slots = depth + 1
};

using RouterOutbox = Outbox<Opened, Accepted, Settled, Applied, LoraReply, TornDown, Enqueue>;

class RouterCore {
 public:
  RouterCore(const RouterConfig& config, const ModelInfo& model);
  ~RouterCore();

  void on(const RingReady& m, TimeNs now, RouterOutbox& out);
  void on(const Open& m, TimeNs now, RouterOutbox& out);
  void on(const Launch& m, TimeNs now, RouterOutbox& out);
  void on(const Await& m, TimeNs now, RouterOutbox& out);
  void on(const Apply& m, TimeNs now, RouterOutbox& out);
  void on(const Lora& m, TimeNs now, RouterOutbox& out);
  void on(const Completed& m, TimeNs now, RouterOutbox& out);
  void on(const Teardown& m, TimeNs now, RouterOutbox& out);

  DeviceFacts facts() const;
  // Walks every table and recounts: empty, or a sentence that names the first rule that is broken. For tests, the
  // simulator and fault dumps; O(sequences + blocks).
  std::string check() const;

 private:
  struct State;
  void finish_teardown(RouterOutbox& out);
  std::unique_ptr<State> s_;
};

}  // namespace troupe::actors
