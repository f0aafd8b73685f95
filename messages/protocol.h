// Every message that crosses a mailbox. The type is the protocol: an actor's interface is the list of types it takes.
//
// All are one-way; what belongs together carries a ticket, a sequence or a request id. Each has a TraceCtx and a
// one-line label. The hot path (DESIGN §5.3), in order, for one step:
//   Launch -> Enqueue -> Watch -> EventDone -> Completed -> Settled, with Accepted beside Enqueue and Deliver after
//   the next Launch: eight messages whatever the batch; rows that the host samples add Sample and Sampled.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "messages/effect.h"
#include "messages/error.h"
#include "messages/facts.h"
#include "messages/ids.h"
#include "messages/lora.h"
#include "messages/model_info.h"
#include "messages/plan.h"
#include "messages/request.h"
#include "messages/result.h"
#include "messages/sample.h"
#include "messages/shared.h"
#include "messages/trace_ctx.h"

namespace troupe {

// ---- runtime -> dispatcher -> scheduler, and back
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
struct Admit {
  TraceCtx ctx;
  RequestId id;
  Shared<Request> request;
  std::uint64_t seed = 0;
  AdapterRef adapter{};  // what the request is bound to, for its whole life
  Error error{};         // it ends with this, at once: there is no such adapter
  bool parked = false;  // it was cancelled, or its deadline passed, while it waited for an adapter: the reason follows
  TimeNs waited = 0;    // of that, since its submission
};
struct Cancel {  // by client id, runtime -> dispatcher; answered by CancelReply
  TraceCtx ctx;
  std::uint64_t client = 0;
};
struct CancelRequest {  // dispatcher -> scheduler
  TraceCtx ctx;
  RequestId id;
};
struct CancelReply {  // scheduler -> dispatcher -> runtime
  TraceCtx ctx;
  RequestId id;
  CancelOutcome outcome = CancelOutcome::not_found;
  std::uint32_t tokens = 0;  // cancelled_running: how many were generated
};
struct Ended {  // scheduler -> dispatcher: these requests have had their terminal event
  TraceCtx ctx;
  std::vector<RequestId> requests;
};
struct Drain {  // finish what runs, refuse new; answered by Drained
  TraceCtx ctx;
};
struct Drained {
  TraceCtx ctx;
};
struct Halt {  // dispatcher -> scheduler: end every request with `error`, now; later ones too
  TraceCtx ctx;
  Error error;
};
struct Tick {  // a timer that the core asked for has expired
  TraceCtx ctx;
};
struct LoraSubmit {  // runtime -> dispatcher -> LoRA controller; answered by LoraAnswer
  TraceCtx ctx;
  std::uint64_t id = 0;
  LoraCommand command;
};
struct LoraAnswer {
  TraceCtx ctx;
  std::uint64_t id = 0;
  LoraAck ack;
  Error error;
};
struct SetTimer {  // outbox only: send me a Tick at `at`
  TimeNs at = 0;
};

// ---- scheduler <-> router
struct Open {
  TraceCtx ctx;
  RequestId request;
  std::uint32_t n_tokens = 0;  // of the prompt (after a preemption: with the output so far)
  AdapterRef adapter;
  Shared<Request> params;      // its prompt may be found in the prefix cache, and goes there; none: neither
  std::vector<Token> output;   // after a preemption: the output so far
  SeqId restore{};             // its state was saved as this sequence, and comes back from its file; incarnation 0 = none
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
  SeqId restore{};               // as in Open. With an error its file is untouched, else it is gone
  bool restored = false;         // what was saved is there; false: it could not be read back, and is computed again
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
// ---- LoRA controller <-> loader, scheduler, router; router <-> stream actor
struct LoadAdapter {  // controller -> loader: into a slot of the model's memory that is not in the table
  TraceCtx ctx;
  std::uint64_t id = 0;
  std::uint32_t slot = 0;
  std::string path;
};
struct AdapterLoaded {
  TraceCtx ctx;
  std::uint64_t id = 0;
  Error error;
};
struct LoraHold {  // controller -> scheduler: preempt its users and open none until `until`, or the Resume before it
  TraceCtx ctx;
  AdapterRef adapter;
  TimeNs until = 0;
};
struct LoraResume {  // controller -> scheduler; gone: requests that are bound to it end with adapter_gone
  TraceCtx ctx;
  AdapterRef adapter;
  bool gone = false;
};
struct Lora {  // controller -> router: change the table, once nothing names what goes out of it; answered by LoraReply
  TraceCtx ctx;
  LoraCommand command;    // what it is for
  AdapterRef show{};      // slot 0: none
  AdapterRef hide{};      // slot 0: none
  bool withdraw = false;  // no longer: it is answered not_quiescent, unless it is done already
};
struct ChangeTable {  // router -> stream actor, in order with the steps
  TraceCtx ctx;
  AdapterRef show;
  AdapterRef hide;
};
struct TableChanged {
  TraceCtx ctx;
  Error error;
};
struct LoraReply {
  TraceCtx ctx;
  LoraAck ack;
  DeviceError error;
};
struct Teardown {
  TraceCtx ctx;
};
struct TornDown {
  TraceCtx ctx;
  DeviceFacts facts;  // every pool whole
};

// ---- router -> stream actor -> device actor -> router
// A place for one save or restore at a time: page-locked memory for so many blocks, and the event of its copy.
struct CopyHandles {
  std::uint32_t place = 0;
  std::uint64_t event = 0;
  std::uint64_t staging = 0;
  std::uint32_t blocks = 0;
  std::uint64_t block_bytes = 0;  // of one KV block, over all layers
  std::uint64_t order = 0;        // an event that orders a copy behind the compute stream; 0: copies go on that stream themselves
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
// KV blocks to or from page-locked memory, in the order of the stream: the compute stream, or one of their own. Watched and
// announced as a step is, with the ring slot ring_slots + place.
struct CopyBlocks {
  TraceCtx ctx;
  Ticket copy;  // the router's count of copies, apart from that of steps
  CopyHandles handles;
  bool out = false;  // from the device
  std::vector<BlockId> blocks;
  std::uint64_t after = 0;  // what the stream waits for first: an event that another stream has recorded (EventRecorded); 0 = nothing
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
};

// ---- router <-> spill actor, scheduler -> spill actor
// A saved state goes in pieces of at most a place's size; `data` is that place's memory, the spill actor's until it answers.
struct StatePiece {
  std::uint32_t place = 0;
  SeqId seq;                    // whose state it is, and the name of its file
  std::uint32_t positions = 0;  // of the whole state, as all below
  std::uint32_t first_block = 0;  // blocks before it are not there (a sliding window has passed them)
  std::uint32_t n_blocks = 0;
  std::uint64_t block_bytes = 0;
  std::uint32_t begin = 0;  // this piece: blocks [begin, begin + count) of the n_blocks
  std::uint32_t count = 0;
  std::uint64_t data = 0;
  bool last() const { return begin + count == n_blocks; }
};
struct WriteState {
  TraceCtx ctx;
  StatePiece piece;
};
struct StateWritten {  // after the last piece the file is whole; after an error there is none
  TraceCtx ctx;
  std::uint32_t place = 0;
  SeqId seq;
  Error error;  // io_failed, overloaded (the limit)
};
struct ReadState {
  TraceCtx ctx;
  StatePiece piece;
};
struct StateRead {  // after the last piece, and after an error, the file is gone
  TraceCtx ctx;
  std::uint32_t place = 0;
  SeqId seq;
  Error error;  // io_failed, bad_file, not_found
};
struct DropState {  // the file, whole or not, is of no use to anybody
  TraceCtx ctx;
  SeqId seq;
};

// ---- scheduler <-> sampler, scheduler -> delivery
struct Sample {
  TraceCtx ctx;
  Shared<SampleBatch> batch;
};
struct Sampled {
  TraceCtx ctx;
  Shared<SampledBatch> batch;
};
struct Deliver {
  TraceCtx ctx;
  Shared<TokenBatch> batch;
};

template <class I> auto inspect(I& f, Submit& x) { return f(x.ctx, x.request, x.drawn_seed); }
template <class I> auto inspect(I& f, SubmitReply& x) { return f(x.ctx, x.request, x.error, x.retry_after); }
template <class I> auto inspect(I& f, Admit& x) { return f(x.ctx, x.id, x.request, x.seed, x.adapter, x.error, x.parked, x.waited); }
template <class I> auto inspect(I& f, Cancel& x) { return f(x.ctx, x.client); }
template <class I> auto inspect(I& f, CancelRequest& x) { return f(x.ctx, x.id); }
template <class I> auto inspect(I& f, CancelReply& x) { return f(x.ctx, x.id, x.outcome, x.tokens); }
template <class I> auto inspect(I& f, Ended& x) { return f(x.ctx, x.requests); }
template <class I> auto inspect(I& f, Drain& x) { return f(x.ctx); }
template <class I> auto inspect(I& f, Drained& x) { return f(x.ctx); }
template <class I> auto inspect(I& f, Halt& x) { return f(x.ctx, x.error); }
template <class I> auto inspect(I& f, Tick& x) { return f(x.ctx); }
template <class I> auto inspect(I& f, SetTimer& x) { return f(x.at); }
template <class I> auto inspect(I& f, Open& x) { return f(x.ctx, x.request, x.n_tokens, x.adapter, x.params, x.output, x.restore, x.restore_len); }
template <class I> auto inspect(I& f, Opened& x) {
  return f(x.ctx, x.request, x.seq, x.slot, x.cached_len, x.error, x.facts, x.restore, x.restored);
}
template <class I> auto inspect(I& f, Saved& x) { return f(x.ctx, x.request, x.seq, x.positions, x.error, x.facts); }
template <class I> auto inspect(I& f, Launch& x) { return f(x.ctx, x.plan, x.await); }
template <class I> auto inspect(I& f, Accepted& x) { return f(x.ctx, x.ticket, x.error, x.facts); }
template <class I> auto inspect(I& f, Await& x) { return f(x.ctx, x.ticket); }
template <class I> auto inspect(I& f, Settled& x) { return f(x.ctx, x.result, x.facts); }
template <class I> auto inspect(I& f, Apply& x) { return f(x.ctx, x.effect); }
template <class I> auto inspect(I& f, Applied& x) { return f(x.ctx, x.outcome, x.error, x.facts); }
template <class I> auto inspect(I& f, LoraSubmit& x) { return f(x.ctx, x.id, x.command); }
template <class I> auto inspect(I& f, LoraAnswer& x) { return f(x.ctx, x.id, x.ack, x.error); }
template <class I> auto inspect(I& f, LoadAdapter& x) { return f(x.ctx, x.id, x.slot, x.path); }
template <class I> auto inspect(I& f, AdapterLoaded& x) { return f(x.ctx, x.id, x.error); }
template <class I> auto inspect(I& f, LoraHold& x) { return f(x.ctx, x.adapter, x.until); }
template <class I> auto inspect(I& f, LoraResume& x) { return f(x.ctx, x.adapter, x.gone); }
template <class I> auto inspect(I& f, ChangeTable& x) { return f(x.ctx, x.show, x.hide); }
template <class I> auto inspect(I& f, TableChanged& x) { return f(x.ctx, x.error); }
template <class I> auto inspect(I& f, Lora& x) { return f(x.ctx, x.command, x.show, x.hide, x.withdraw); }
template <class I> auto inspect(I& f, LoraReply& x) { return f(x.ctx, x.ack, x.error); }
template <class I> auto inspect(I& f, Teardown& x) { return f(x.ctx); }
template <class I> auto inspect(I& f, TornDown& x) { return f(x.ctx, x.facts); }
template <class I> auto inspect(I& f, CopyHandles& x) { return f(x.place, x.event, x.staging, x.blocks, x.block_bytes, x.order); }
template <class I> auto inspect(I& f, RingReady& x) { return f(x.ctx, x.slots, x.places); }
template <class I> auto inspect(I& f, Enqueue& x) { return f(x.ctx, x.step); }
template <class I> auto inspect(I& f, Watch& x) { return f(x.ctx, x.ticket, x.ring_slot, x.n_rows, x.n_logits, x.error, x.on_stream); }
template <class I> auto inspect(I& f, EventDone& x) { return f(x.ctx, x.ticket, x.ring_slot, x.error); }
template <class I> auto inspect(I& f, Completed& x) { return f(x.ctx, x.ring_slot, x.result); }
template <class I> auto inspect(I& f, RecordEvent& x) { return f(x.ctx, x.mark, x.place, x.event); }
template <class I> auto inspect(I& f, EventRecorded& x) { return f(x.ctx, x.mark, x.place, x.error); }
template <class I> auto inspect(I& f, CopyBlocks& x) { return f(x.ctx, x.copy, x.handles, x.out, x.blocks, x.after); }
template <class I> auto inspect(I& f, CopyDone& x) { return f(x.ctx, x.copy, x.place, x.error); }
template <class I> auto inspect(I& f, StatePiece& x) {
  return f(x.place, x.seq, x.positions, x.first_block, x.n_blocks, x.block_bytes, x.begin, x.count, x.data);
}
template <class I> auto inspect(I& f, WriteState& x) { return f(x.ctx, x.piece); }
template <class I> auto inspect(I& f, StateWritten& x) { return f(x.ctx, x.place, x.seq, x.error); }
template <class I> auto inspect(I& f, ReadState& x) { return f(x.ctx, x.piece); }
template <class I> auto inspect(I& f, StateRead& x) { return f(x.ctx, x.place, x.seq, x.error); }
template <class I> auto inspect(I& f, DropState& x) { return f(x.ctx, x.seq); }
template <class I> auto inspect(I& f, ReadSlot& x) { return f(x.ticket, x.ring_slot, x.n_rows, x.n_logits, x.error); }
template <class I> auto inspect(I& f, Sample& x) { return f(x.ctx, x.batch); }
template <class I> auto inspect(I& f, Sampled& x) { return f(x.ctx, x.batch); }
template <class I> auto inspect(I& f, Deliver& x) { return f(x.ctx, x.batch); }

// One line, "Launch DecodeFed{n=4, fed=3}". label(x) exists for every message above.
std::string label(const Submit& x);
std::string label(const SubmitReply& x);
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
std::string label(const Open& x);
std::string label(const Opened& x);
std::string label(const Saved& x);
std::string label(const Launch& x);
std::string label(const Accepted& x);
std::string label(const Await& x);
std::string label(const Settled& x);
std::string label(const Apply& x);
std::string label(const Applied& x);
std::string label(const LoraSubmit& x);
std::string label(const LoraAnswer& x);
std::string label(const LoadAdapter& x);
std::string label(const AdapterLoaded& x);
std::string label(const LoraHold& x);
std::string label(const LoraResume& x);
std::string label(const ChangeTable& x);
std::string label(const TableChanged& x);
std::string label(const Lora& x);
std::string label(const LoraReply& x);
std::string label(const Teardown& x);
std::string label(const TornDown& x);
std::string label(const RingReady& x);
std::string label(const Enqueue& x);
std::string label(const Watch& x);
std::string label(const EventDone& x);
std::string label(const Completed& x);
std::string label(const RecordEvent& x);
std::string label(const EventRecorded& x);
std::string label(const CopyBlocks& x);
std::string label(const CopyDone& x);
std::string label(const StatePiece& x);  // "s1.5 blocks 0+4/7"
std::string label(const WriteState& x);
std::string label(const StateWritten& x);
std::string label(const ReadState& x);
std::string label(const StateRead& x);
std::string label(const DropState& x);
std::string label(const ReadSlot& x);
std::string label(const Sample& x);
std::string label(const Sampled& x);
std::string label(const Deliver& x);

}  // namespace troupe
