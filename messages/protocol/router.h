// Steps: scheduler <-> router and sampler. See protocol.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "messages/effect.h"
#include "messages/error.h"
#include "messages/facts.h"
#include "messages/ids.h"
#include "messages/plan.h"
#include "messages/request.h"
#include "messages/result.h"
#include "messages/sample.h"
#include "messages/shared.h"
#include "messages/trace_ctx.h"

namespace troupe {

struct Open {
  TraceCtx ctx;
  RequestId request;
  std::uint32_t n_tokens = 0;  // of the prompt (after a preemption: with the output so far)
  AdapterRef adapter;
  Shared<Request> params;         // its prompt may be found in the prefix cache, and goes there; none: neither
  std::vector<Token> output;      // after a preemption: the output so far
  SeqId restore{};                // its state was saved as this sequence, and comes back from its file; incarnation 0 = none
  std::uint32_t restore_len = 0;  // positions that were saved
};
struct Opened {
  TraceCtx ctx;
  RequestId request;
  SeqId seq;
  std::uint32_t slot = 0;
  std::uint32_t cached_len = 0;  // positions whose KV is there already
  DeviceError error;             // slot_exhausted, closed, device_lost; of a restore also kv_exhausted, overloaded
  DeviceFacts facts;
  SeqId restore{};        // as in Open. With an error its file is untouched, else it is gone
  bool restored = false;  // what was saved is there; false: it could not be read back, and is computed again
  // Of a model with recurrent layers: positions, ascending, at which a chunk of the known tokens has to end, so that the state
  // there can be kept for other requests; 0 = none.
  std::uint32_t cut_first = 0;
  std::uint32_t cut_second = 0;
  // The snapshot of the state behind cached_len, which is the sequence's from now on: SsmSnapshotRestore names it, before any row.
  std::uint32_t snapshot = DeviceRow::kNone;
};
struct Saved {  // the answer to SaveSequenceState, once for each: the file holds `positions`, or (error) there is none
  TraceCtx ctx;
  RequestId request;
  SeqId seq;
  std::uint32_t positions = 0;
  DeviceError error;  // overloaded: no place, or the limit is reached; io_failed; device_failed, device_lost, closed
  DeviceFacts facts;
};
struct Launch {
  TraceCtx ctx;
  Shared<StepPlan> plan;
  bool await = true;  // the await of this ticket travels with the launch
};
struct Accepted {  // the ticket is open, or (error) nothing was launched and nothing reserved
  TraceCtx ctx;
  Ticket ticket;
  DeviceError error;
  DeviceFacts facts;
};
struct Await {  // for a ticket launched with await = false
  TraceCtx ctx;
  Ticket ticket;
};
struct Settled {  // the answer to an await, once per ticket
  TraceCtx ctx;
  Shared<StepResult> result;
  DeviceFacts facts;
};
struct Apply {
  TraceCtx ctx;
  Effect effect;
};
struct Applied {
  TraceCtx ctx;
  EffectOutcome outcome;
  DeviceError error;
  DeviceFacts facts;
};
struct Teardown {
  TraceCtx ctx;
};
struct TornDown {
  TraceCtx ctx;
  DeviceFacts facts;  // every pool whole
};
struct Sample {
  TraceCtx ctx;
  Shared<SampleBatch> batch;
};
struct Sampled {
  TraceCtx ctx;
  Shared<SampledBatch> batch;
};

template <class I>
auto inspect(I& f, Open& x) {
  return f(x.ctx, x.request, x.n_tokens, x.adapter, x.params, x.output, x.restore, x.restore_len);
}
template <class I>
auto inspect(I& f, Opened& x) {
  return f(x.ctx, x.request, x.seq, x.slot, x.cached_len, x.error, x.facts, x.restore, x.restored, x.cut_first, x.cut_second, x.snapshot);
}
template <class I>
auto inspect(I& f, Saved& x) {
  return f(x.ctx, x.request, x.seq, x.positions, x.error, x.facts);
}
template <class I>
auto inspect(I& f, Launch& x) {
  return f(x.ctx, x.plan, x.await);
}
template <class I>
auto inspect(I& f, Accepted& x) {
  return f(x.ctx, x.ticket, x.error, x.facts);
}
template <class I>
auto inspect(I& f, Await& x) {
  return f(x.ctx, x.ticket);
}
template <class I>
auto inspect(I& f, Settled& x) {
  return f(x.ctx, x.result, x.facts);
}
template <class I>
auto inspect(I& f, Apply& x) {
  return f(x.ctx, x.effect);
}
template <class I>
auto inspect(I& f, Applied& x) {
  return f(x.ctx, x.outcome, x.error, x.facts);
}
template <class I>
auto inspect(I& f, Teardown& x) {
  return f(x.ctx);
}
template <class I>
auto inspect(I& f, TornDown& x) {
  return f(x.ctx, x.facts);
}
template <class I>
auto inspect(I& f, Sample& x) {
  return f(x.ctx, x.batch);
}
template <class I>
auto inspect(I& f, Sampled& x) {
  return f(x.ctx, x.batch);
}

std::string label(const Open& x);
std::string label(const Opened& x);
std::string label(const Saved& x);
std::string label(const Launch& x);
std::string label(const Accepted& x);
std::string label(const Await& x);
std::string label(const Settled& x);
std::string label(const Apply& x);
std::string label(const Applied& x);
std::string label(const Teardown& x);
std::string label(const TornDown& x);
std::string label(const Sample& x);
std::string label(const Sampled& x);

}  // namespace troupe
