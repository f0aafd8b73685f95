// The scripted model: a ModelDeviceFeed for tests and benchmarks whose tokens are a hash of the history (see
// scripted_oracle.h), whose steps take a programmed time, and whose faults are programmed.
//
// It works as a real model does: paged KV in device memory (one 64-bit state per position, read back through the block
// table), device-side block tables changed by deltas, feed cells with tags, results copied to page-locked memory.
// So a wrong input id, position, block table, an early reuse of a block or a lost write gives other tokens.
//
// Rows of a step see the block tables and the KV as earlier rows of the same step left them. Per step nothing is
// allocated. A step that fails writes neither KV nor cells, so that who reads its cells finds another tag.
//
// Errors of decode_batch_fed: bad_plan (a row, delta or id out of range: nothing is enqueued), overloaded (more steps
// enqueued than max_depth + 1). A block table without the block of a position that is read or written fails its step with
// bad_plan.
//
// Threads: a stream for each feed, and one for copies; what model.h says. The destructor waits for the steps that are enqueued, and needs
// the driver alive; it releases a step that hangs.
#pragma once

#include <memory>
#include <span>

#include "device/driver.h"
#include "device/model.h"
#include "device/models/scripted_oracle.h"

namespace troupe::device {

// When a step was enqueued, reached by the stream, and done (monotonic clock). 0 = not yet.
struct ScriptedTimes {
  std::uint64_t step = 0;
  TimeNs enqueued = 0;
  TimeNs started = 0;
  TimeNs done = 0;
};

class ScriptedModel final : public ModelDeviceFeed {
 public:
  // Errors: bad_request for the options, what the driver says for memory.
  static Result<std::unique_ptr<ScriptedModel>> load(Driver& driver, ScriptedOptions options);
  ~ScriptedModel() override;

  const ModelInfo& info() const override;
  std::size_t cells_bytes() const override;
  bool supports_device_token_feed() const override { return true; }
  Result<DevicePtr> decode_batch_fed(const StepView& step, Stream stream) override;
  Result<void> argmax_batch_to_feed(DevicePtr logits, const StepView& step, ReadbackTarget dst, Event event, Stream stream) override;
  std::size_t kv_block_bytes() const override;
  Result<void> copy_blocks_out(std::span<const BlockId> blocks, void* to, Stream stream) override;
  Result<void> copy_blocks_in(std::span<const BlockId> blocks, const void* from, Stream stream) override;
  void fed_step_settled(Ticket ticket) override;
  ModelDeviceFeed* prefill_feed() override;

  const ScriptedOptions& options() const;
  std::uint64_t settled() const;  // calls of fed_step_settled
  // Steps that hang complete from now on. Any thread.
  void release();
  // The first log_steps steps of the compute stream, in order of enqueueing. To be read while no step is in flight.
  std::span<const ScriptedTimes> times() const;

 private:
  struct State;
  class Aside;
  explicit ScriptedModel(std::unique_ptr<State> state);
  std::unique_ptr<State> s_;
};

}  // namespace troupe::device
