// Requests: runtime <-> dispatcher <-> the replicas and delivery. See protocol.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "messages/error.h"
#include "messages/ids.h"
#include "messages/request.h"
#include "messages/shared.h"
#include "messages/trace_ctx.h"

namespace troupe {

struct Submit {  // answered by SubmitReply
  TraceCtx ctx;
  Shared<Request> request;
  std::uint64_t drawn_seed = 0;  // used when the request names no seed
};
struct SubmitReply {
  TraceCtx ctx;
  RequestId request;  // accepted
  Error error;        // bad_request, overloaded, closed
  TimeNs retry_after = 0;
};
struct Placed {  // a request at one of its attempts
  RequestId id;
  std::uint32_t attempt = 0;
  bool operator==(const Placed&) const = default;
};
// To a replica. After a move to another one: `attempt` above 0, and the output so far, which is not delivered again; the
// request goes on from there as one that was preempted does.
struct Admit {
  TraceCtx ctx;
  RequestId id;
  Shared<Request> request;
  std::uint64_t seed = 0;
  AdapterRef adapter{};  // what the request is bound to, for its whole life
  Error error{};         // it ends with this, at once: there is no such adapter
  bool parked = false;   // it was cancelled, or its deadline passed, while it waited for an adapter: the reason follows
  TimeNs waited = 0;     // of that, since its submission
  ReplicaRef replica{};
  std::uint32_t attempt = 0;
  std::vector<Token> output{};
  bool other_arithmetic = false;      // part of the output comes from a replica whose bits may differ
  std::uint64_t adapter_command = 0;  // with output: the LoraSubmit that loaded the adapter it came from; 0 = the base model
};
struct Cancel {  // by client id, runtime -> dispatcher; answered by CancelReply
  TraceCtx ctx;
  std::uint64_t client = 0;
};
struct CancelRequest {  // dispatcher -> scheduler
  TraceCtx ctx;
  RequestId id;
  ReplicaRef replica{};
};
struct CancelReply {  // scheduler -> dispatcher -> runtime
  TraceCtx ctx;
  RequestId id;
  CancelOutcome outcome = CancelOutcome::not_found;
  std::uint32_t tokens = 0;  // cancelled_running: how many were generated
  ReplicaRef replica{};
};
struct Ended {  // scheduler -> dispatcher: these requests have had their terminal event
  TraceCtx ctx;
  std::vector<Placed> requests;
  ReplicaRef replica{};
};
struct Drain {  // finish what runs, refuse new; answered by Drained
  TraceCtx ctx;
  ReplicaRef replica{};
};
struct Drained {
  TraceCtx ctx;
  ReplicaRef replica{};
};
struct Halt {  // dispatcher -> scheduler: end every request with `error`, now; later ones too
  TraceCtx ctx;
  Error error;
};
struct Tick {  // a timer that the core asked for has expired
  TraceCtx ctx;
};
struct SetTimer {  // outbox only: send me a Tick at `at`
  TimeNs at = 0;
};
// dispatcher -> delivery: these requests are moved; `attempt` is the one that counts from here on. Answered by Reclaimed, in
// order: what was delivered until then is all that their clients have had (R5).
struct Reclaim {
  TraceCtx ctx;
  std::vector<Placed> requests;
};
struct ReclaimedRequest {
  RequestId id;
  std::uint32_t attempt = 0;    // as in Reclaim
  std::vector<Token> output{};  // delivered so far
  bool ended = false;           // its terminal event was delivered too
};
struct Reclaimed {
  TraceCtx ctx;
  std::vector<ReclaimedRequest> requests;
};
struct EndRequests {  // dispatcher -> delivery: the terminal events of requests that are on no replica
  TraceCtx ctx;
  std::vector<Finish> finishes;
  std::string text{};  // theirs: what was held back of what their clients have
};
struct Deliver {
  TraceCtx ctx;
  Shared<TokenBatch> batch;
};
// delivery -> dispatcher, where there are several replicas: the clients have the terminal events of these, or will before
// anything that they do about it arrives. Until then a request is live, and is moved if its replica is lost, whatever that
// one said of its end.
struct Delivered {
  TraceCtx ctx;
  std::vector<Placed> requests;
};

template <class I>
auto inspect(I& f, Submit& x) {
  return f(x.ctx, x.request, x.drawn_seed);
}
template <class I>
auto inspect(I& f, SubmitReply& x) {
  return f(x.ctx, x.request, x.error, x.retry_after);
}
template <class I>
auto inspect(I& f, Placed& x) {
  return f(x.id, x.attempt);
}
template <class I>
auto inspect(I& f, Admit& x) {
  return f(x.ctx, x.id, x.request, x.seed, x.adapter, x.error, x.parked, x.waited, x.replica, x.attempt, x.output, x.other_arithmetic,
           x.adapter_command);
}
template <class I>
auto inspect(I& f, Cancel& x) {
  return f(x.ctx, x.client);
}
template <class I>
auto inspect(I& f, CancelRequest& x) {
  return f(x.ctx, x.id, x.replica);
}
template <class I>
auto inspect(I& f, CancelReply& x) {
  return f(x.ctx, x.id, x.outcome, x.tokens, x.replica);
}
template <class I>
auto inspect(I& f, Ended& x) {
  return f(x.ctx, x.requests, x.replica);
}
template <class I>
auto inspect(I& f, Drain& x) {
  return f(x.ctx, x.replica);
}
template <class I>
auto inspect(I& f, Drained& x) {
  return f(x.ctx, x.replica);
}
template <class I>
auto inspect(I& f, Halt& x) {
  return f(x.ctx, x.error);
}
template <class I>
auto inspect(I& f, Tick& x) {
  return f(x.ctx);
}
template <class I>
auto inspect(I& f, SetTimer& x) {
  return f(x.at);
}
template <class I>
auto inspect(I& f, Reclaim& x) {
  return f(x.ctx, x.requests);
}
template <class I>
auto inspect(I& f, ReclaimedRequest& x) {
  return f(x.id, x.attempt, x.output, x.ended);
}
template <class I>
auto inspect(I& f, Reclaimed& x) {
  return f(x.ctx, x.requests);
}
template <class I>
auto inspect(I& f, EndRequests& x) {
  return f(x.ctx, x.finishes, x.text);
}
template <class I>
auto inspect(I& f, Delivered& x) {
  return f(x.ctx, x.requests);
}
template <class I>
auto inspect(I& f, Deliver& x) {
  return f(x.ctx, x.batch);
}

std::string label(const Submit& x);
std::string label(const SubmitReply& x);
std::string label(const Placed& x);  // "7#2", "7#2/1": attempt 1
std::string label(const Admit& x);
std::string label(const Cancel& x);
std::string label(const CancelRequest& x);
std::string label(const CancelReply& x);
std::string label(const Ended& x);
std::string label(const Drain& x);
std::string label(const Drained& x);
std::string label(const Halt& x);
std::string label(const Tick& x);
std::string label(const SetTimer& x);
std::string label(const Reclaim& x);
std::string label(const ReclaimedRequest& x);  // "7#2/1 output=5"
std::string label(const Reclaimed& x);
std::string label(const EndRequests& x);
std::string label(const Deliver& x);
std::string label(const Delivered& x);

}  // namespace troupe
