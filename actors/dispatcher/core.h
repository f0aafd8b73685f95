// The dispatcher: request identity (generations), admission limits, and which requests are live. One replica.
//
// Deterministic; one thread at a time (the dispatcher actor's).
#pragma once

#include <cstdint>
#include <memory>

#include "actors/outbox.h"
#include "messages/protocol.h"

namespace troupe::actors {

struct DispatcherConfig {
  std::uint32_t max_live = 1024;  // accepted and not ended; beyond it: overloaded
};

using DispatcherOutbox = Outbox<SubmitReply, Admit, CancelRequest, CancelReply, Drain, Drained, Ended, LoraSubmit, LoraAnswer>;

// The first limit of the model that the request breaks, as bad_request with what to change; code none = fine.
Error validate(const Request& request, const ModelInfo& model);

class DispatcherCore {
 public:
  DispatcherCore(const DispatcherConfig& config, const ModelInfo& model);
  ~DispatcherCore();

  // Answers with exactly one SubmitReply, in the same call. overloaded says when to try again: about when some request
  // will have ended, by the pace at which the last ones did.
  void on(const Submit& m, TimeNs now, DispatcherOutbox& out);
  // Answers with a CancelReply, now (not_found, already_finished) or when the scheduler has answered.
  void on(const Cancel& m, TimeNs now, DispatcherOutbox& out);
  void on(const CancelReply& m, TimeNs now, DispatcherOutbox& out);
  void on(const Ended& m, TimeNs now, DispatcherOutbox& out);
  void on(const Drain& m, TimeNs now, DispatcherOutbox& out);
  void on(const Drained& m, TimeNs now, DispatcherOutbox& out);
  // Goes to the LoRA controller, in order with the submissions. unsupported: the model has no adapter slots.
  void on(const LoraSubmit& m, TimeNs now, DispatcherOutbox& out);
  void on(const LoraAnswer& m, TimeNs now, DispatcherOutbox& out);

  std::uint32_t live() const;

 private:
  struct State;
  std::unique_ptr<State> s_;
};

}  // namespace troupe::actors
