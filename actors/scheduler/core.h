// The scheduler: owns requests and their lifecycle, the waiting queue and the pipeline of steps in flight. It plans
// steps (continuous batching, chunked prefill in the same step as decode rows), commits results, and keeps the
// pipeline `depth` steps deep by feeding rows from steps whose tokens it has not seen (R1, R2, R10).
//
// Where prefill has a stream of its own, there is a pipeline for each of the two streams: chunks make steps of their own there, and
// single tokens the steps of the compute stream. A sequence is on one stream at a time: while a step in flight names it, disowned
// rows included, its next row goes to that stream or waits (R12). So the first row behind a prompt waits until the prompt's last step
// has settled. To launch it before, the compute stream would have to wait for the other one, with the rows of everybody in the
// step: what the second stream is there to avoid.
//
// Deterministic: time comes with each message, random seeds come with the request. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "actors/outbox.h"
#include "messages/protocol.h"

namespace troupe::actors {

// Switches that break one rule each, for negative controls only (R1, R2 tests; `troupe verify --fault`).
enum class SchedulerFault : std::uint8_t {
  none,
  keep_overrun,        // R2: a row fed past a stop is committed
  ignore_mask_change,  // R2: rows launched with an older mask are committed
  drop_terminal,       // R5: now and then a request ends and its client is not told
  deliver_twice,       // R5: now and then a token goes out twice
  forget_epoch,        // R2: a disowned row's result is committed
  join_early,          // R12: rows follow a sequence to the compute stream while a step of the other one names it
};

struct SchedulerConfig {
  std::uint32_t router_incarnation = 1;
  std::uint32_t depth = 2;             // most steps in flight; cut to ModelInfo::max_depth, 1 without device feed
  std::uint32_t max_batch = 32;        // running requests; cut to ModelInfo::max_rows
  std::uint32_t step_tokens = 512;     // token budget of a step, prefill chunks and decode rows together
  std::uint32_t resume_immunity = 16;  // tokens that a resumed request generates before it is preempted again, if another can be
  std::uint32_t spill_places = 0;      // saves and restores at a time; 0 = a preempted request is always computed again
  std::uint32_t spill_min_blocks = 4;  // a preempted request is saved if it has more full settled blocks than that
  ReplicaRef replica{0, 1};            // what it tells the dispatcher it is
  bool movable = false;                // when the device is lost its requests are not ended: the dispatcher moves them
  bool prefill_stream = false;         // chunks are launched on a stream of their own, `depth` of them as well
  SchedulerFault fault = SchedulerFault::none;
};

// Counted since start; read by metrics and verify.
struct SchedulerStats {
  std::uint64_t steps = 0;          // launched
  std::uint64_t settled = 0;        // of those
  std::uint64_t decode_steps = 0;   // with at least one row that continues a sequence's output
  std::uint64_t steps_ahead = 0;    // of those: enqueued while an earlier one was unsettled, with a fed row
  std::uint64_t prefill_steps = 0;  // on a stream of their own
  std::uint64_t rows = 0;
  std::uint64_t fed_rows = 0;
  std::uint64_t device_sampled = 0;  // rows
  std::uint64_t overruns = 0;        // fed rows dropped: their sequence had ended
  std::uint64_t redone_rows = 0;     // rows disowned by a changed mask, and their descendants
  std::uint64_t stale_results = 0;   // rows of an older epoch, dropped
  std::uint64_t failed_rows = 0;     // NaN, poisoned or failed-step rows
  std::uint64_t preemptions = 0;
  std::uint64_t tokens = 0;          // committed
  std::uint64_t prefill_tokens = 0;  // launched
  std::uint64_t retries = 0;         // failed rows that were launched once more (R7)
  std::uint64_t resumes = 0;         // opened again after a preemption
  std::uint64_t kv_waits = 0;        // launches refused for blocks that waited, and preempted nobody
  std::uint64_t fence_waits = 0;     // of those: because enough was fenced (R10)
  std::uint64_t ring_waits = 0;      // launches refused for a ring slot
  std::uint64_t host_chosen = 0;     // rows that went to the sampler
  std::uint64_t cached_tokens = 0;   // prompt tokens found in the prefix cache
  std::uint64_t spills = 0;          // preemptions that saved what was computed
  std::uint64_t spill_failures = 0;  // of those: not saved, and computed again
  std::uint64_t restores = 0;        // requests that went on from what was saved
  std::uint64_t restore_failures = 0;
  std::uint64_t spills_dropped = 0;   // requests that ended with their state in a file
  std::uint64_t ended_saving = 0;     // that ended while it was written
  std::uint64_t ended_restoring = 0;  // that ended while it was read back
  std::uint64_t taken_over = 0;       // requests that came with output of another replica
};

using SchedulerOutbox =
    Outbox<Open, Launch, Apply, Sample, Deliver, Ended, CancelReply, Drained, SetTimer, DropState, ReplicaLost, ReplicaReport>;

class SchedulerCore {
 public:
  SchedulerCore(const SchedulerConfig& config, const ModelInfo& model);
  ~SchedulerCore();

  // With output of an earlier attempt it goes on behind it, as a request that was preempted does: text, stop conditions,
  // penalties and random numbers as if every token had been chosen here.
  void on(const Admit& m, TimeNs now, SchedulerOutbox& out);
  void on(const CancelRequest& m, TimeNs now, SchedulerOutbox& out);
  void on(const Opened& m, TimeNs now, SchedulerOutbox& out);
  void on(const Saved& m, TimeNs now, SchedulerOutbox& out);
  void on(const Accepted& m, TimeNs now, SchedulerOutbox& out);
  void on(const Settled& m, TimeNs now, SchedulerOutbox& out);
  void on(const Sampled& m, TimeNs now, SchedulerOutbox& out);
  void on(const Applied& m, TimeNs now, SchedulerOutbox& out);
  void on(const Tick& m, TimeNs now, SchedulerOutbox& out);
  void on(const Drain& m, TimeNs now, SchedulerOutbox& out);
  void on(const Halt& m, TimeNs now, SchedulerOutbox& out);
  void on(const AskReport& m, TimeNs now, SchedulerOutbox& out);
  // R9: preempts the adapter's users and opens none until the Resume, or until the lease has expired.
  void on(const LoraHold& m, TimeNs now, SchedulerOutbox& out);
  void on(const LoraResume& m, TimeNs now, SchedulerOutbox& out);

  // Tokens and ends since the last Deliver, as one. To be called after the outbox of every message has been sent. What a
  // Settled gave is held back until the next message if a step was launched, for on the one control thread that would wait;
  // the router's answer is the next message at the latest.
  void deliver(SchedulerOutbox& out);

  const SchedulerStats& stats() const;
  std::uint32_t waiting() const;
  std::uint32_t running() const;
  std::uint32_t in_flight() const;
  TimeNs last_settled() const;  // for health (R10): 0 = none yet
  std::string check() const;    // as RouterCore::check

 private:
  struct State;
  std::unique_ptr<State> s_;
};

}  // namespace troupe::actors
