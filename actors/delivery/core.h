// What clients have been given, and what they may still be given (R5): per live request the attempt that counts, and how many
// of its tokens were delivered. An event counts if its attempt is that one and its index the next; every other one is counted
// and dropped. So whatever a lost replica still says, and whatever arrives late, no client sees it.
//
// A request that is moved is reclaimed: its attempt rises, and what was delivered until then is answered, the only truth of
// what its client has. Between the two nothing can come in.
//
// The shell gives it a batch, sends what it answers, and then calls back for what counts. So the dispatcher knows of an end
// before anything that its client does about it arrives.
//
// Deterministic; one thread at a time (the delivery thread). Nothing is allocated for a token: open() sets the memory aside.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "actors/outbox.h"
#include "messages/protocol.h"

namespace troupe::actors {

// Breaks the rule, for negative controls only.
enum class DeliveryFault : std::uint8_t {
  none,
  any_attempt,  // R5: what an attempt that is over says counts too, if its index fits
};

struct DeliveryConfig {
  bool reclaims = false;  // there are several replicas: tokens are kept until their request ends, and ends are told
  DeliveryFault fault = DeliveryFault::none;
};

// Counted since start.
struct DeliveryStats {
  std::uint64_t tokens = 0;    // delivered
  std::uint64_t ends = 0;      // delivered
  std::uint64_t late = 0;      // events of an attempt that was over, or of a request that had ended
  std::uint64_t repeated = 0;  // tokens of the attempt that counts with an index that does not come next: nobody should send one
  std::uint64_t reclaimed = 0;
};

using DeliveryOutbox = Outbox<Reclaimed, Delivered>;

class DeliveryCore {
 public:
  explicit DeliveryCore(const DeliveryConfig& config) : config_(config) {}

  // The request may have events from here on, at most `max_tokens` tokens.
  void open(const RequestId& id, std::uint32_t max_tokens);
  // What of it counts is in events() and finishes() until the next one. After its end a request is forgotten.
  void on(const Deliver& m, TimeNs now, DeliveryOutbox& out);
  void on(const EndRequests& m, TimeNs now, DeliveryOutbox& out);
  void on(const Reclaim& m, TimeNs now, DeliveryOutbox& out);
  // Nothing more is delivered for anybody.
  void clear() { open_.clear(); }

  const std::vector<std::uint32_t>& events() const { return events_; }      // indices in the batch
  const std::vector<std::uint32_t>& finishes() const { return finishes_; }  // likewise, or in EndRequests
  std::size_t live() const { return open_.size(); }
  const DeliveryStats& stats() const { return stats_; }

 private:
  struct Open {
    std::uint32_t attempt = 0;
    std::uint32_t next = 0;  // index of the next token
    std::vector<Token> tokens;
  };
  bool take(const TokenEvent& event);
  bool take(const Finish& finish);
  void end(const std::vector<Finish>& finishes, DeliveryOutbox& out);
  bool counts(std::uint32_t attempt, const Open& o) const { return attempt == o.attempt || config_.fault == DeliveryFault::any_attempt; }

  const DeliveryConfig config_;
  std::map<RequestId, Open> open_;
  std::vector<std::uint32_t> events_, finishes_;
  DeliveryStats stats_;
};

}  // namespace troupe::actors
