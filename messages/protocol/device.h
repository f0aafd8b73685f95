// Steps and copies on their way: router -> stream actor -> device actor -> router. See protocol.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "messages/error.h"
#include "messages/ids.h"
#include "messages/plan.h"
#include "messages/result.h"
#include "messages/shared.h"
#include "messages/trace_ctx.h"

namespace troupe {

// A place for one save or restore at a time: page-locked memory for so many blocks, and the event of its copy.
struct CopyHandles {
  std::uint32_t place = 0;
  std::uint64_t event = 0;
  std::uint64_t staging = 0;
  std::uint32_t blocks = 0;
  std::uint64_t block_bytes = 0;  // of one KV block, over all layers
  std::uint64_t order = 0;        // an event that orders a copy behind the compute stream; 0: copies go on that stream themselves
  std::uint32_t state_parts = 0;  // of block_bytes, that a version of recurrent state takes up, the last one filled up; 0: there is none
};
struct RingReady {  // device actor -> router, once at start
  TraceCtx ctx;
  std::vector<SlotHandles> slots;
  std::vector<CopyHandles> places{};  // empty: nothing can be saved
};
struct Enqueue {
  TraceCtx ctx;
  Shared<LaunchedStep> step;
};
// The step is on the stream; or (error) enqueueing failed. on_stream: part of it is there all the same, and its event behind
// that: it is answered with the error once the event has come, so that nothing of its slot is used before (R4).
struct Watch {
  TraceCtx ctx;
  Ticket ticket;
  std::uint32_t ring_slot = 0;
  std::uint32_t n_rows = 0;
  std::uint32_t n_logits = 0;
  DeviceError error;
  bool on_stream = false;
  std::uint32_t n_logprobs = 0;
};
struct EventDone {  // the slot's event has completed; on the host it may come before the watch
  TraceCtx ctx;
  Ticket ticket;
  std::uint32_t ring_slot = 0;
  DeviceError error;  // what the work on the stream reported
};
struct Completed {
  TraceCtx ctx;
  std::uint32_t ring_slot = 0;
  Shared<StepResult> result;
};
// Router -> stream actor of the compute stream: record the event behind all that is on the stream, and say so. Only then may
// another stream be told to wait for it: a wait for an event that is not recorded waits for nothing.
struct RecordEvent {
  TraceCtx ctx;
  Ticket mark;  // the router's count of marks
  std::uint32_t place = 0;
  std::uint64_t event = 0;
};
struct EventRecorded {
  TraceCtx ctx;
  Ticket mark;
  std::uint32_t place = 0;
  Error error;  // it is not: device_failed, device_lost
};
// KV blocks, or parts of a version of recurrent state, to or from page-locked memory, in the order of the stream: the compute
// stream, or one of their own. Watched and announced as a step is, with the ring slot ring_slots + place.
struct CopyBlocks {
  TraceCtx ctx;
  Ticket copy;  // the router's count of copies, apart from that of steps
  CopyHandles handles;
  bool out = false;  // from the device
  std::vector<BlockId> blocks;
  std::uint64_t after = 0;  // what the stream waits for first: an event that another stream has recorded (EventRecorded); 0 = nothing
  std::uint32_t state = DeviceRow::kNone;  // the version, of which parts [part, part + n_parts) are copied, and no blocks
  std::uint32_t part = 0;
  std::uint32_t n_parts = 0;
};
struct CopyDone {  // device actor -> router; device_failed of phase forward: part of it may still be on the stream
  TraceCtx ctx;
  Ticket copy;
  std::uint32_t place = 0;
  DeviceError error;
};
struct ReadSlot {  // outbox of the device core only: read the ring slot and send Completed
  Ticket ticket;
  std::uint32_t ring_slot = 0;
  std::uint32_t n_rows = 0;
  std::uint32_t n_logits = 0;
  DeviceError error;
  std::uint32_t n_logprobs = 0;
};

template <class I>
auto inspect(I& f, CopyHandles& x) {
  return f(x.place, x.event, x.staging, x.blocks, x.block_bytes, x.order, x.state_parts);
}
template <class I>
auto inspect(I& f, RingReady& x) {
  return f(x.ctx, x.slots, x.places);
}
template <class I>
auto inspect(I& f, Enqueue& x) {
  return f(x.ctx, x.step);
}
template <class I>
auto inspect(I& f, Watch& x) {
  return f(x.ctx, x.ticket, x.ring_slot, x.n_rows, x.n_logits, x.error, x.on_stream, x.n_logprobs);
}
template <class I>
auto inspect(I& f, EventDone& x) {
  return f(x.ctx, x.ticket, x.ring_slot, x.error);
}
template <class I>
auto inspect(I& f, Completed& x) {
  return f(x.ctx, x.ring_slot, x.result);
}
template <class I>
auto inspect(I& f, RecordEvent& x) {
  return f(x.ctx, x.mark, x.place, x.event);
}
template <class I>
auto inspect(I& f, EventRecorded& x) {
  return f(x.ctx, x.mark, x.place, x.error);
}
template <class I>
auto inspect(I& f, CopyBlocks& x) {
  return f(x.ctx, x.copy, x.handles, x.out, x.blocks, x.after, x.state, x.part, x.n_parts);
}
template <class I>
auto inspect(I& f, CopyDone& x) {
  return f(x.ctx, x.copy, x.place, x.error);
}
template <class I>
auto inspect(I& f, ReadSlot& x) {
  return f(x.ticket, x.ring_slot, x.n_rows, x.n_logits, x.error, x.n_logprobs);
}

std::string label(const RingReady& x);
std::string label(const Enqueue& x);
std::string label(const Watch& x);
std::string label(const EventDone& x);
std::string label(const Completed& x);
std::string label(const RecordEvent& x);
std::string label(const EventRecorded& x);
std::string label(const CopyBlocks& x);
std::string label(const CopyDone& x);
std::string label(const ReadSlot& x);

}  // namespace troupe
