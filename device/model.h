// The two seed interfaces in C++: ModelDeviceFeed (what a model implements) and DeviceIo (the router, called
// directly). Names, meaning and defaults are the seed pages'. Of the seed's ModelDeviceFeed, event_query,
// event_synchronize, destroy_event, copy_d2h_async, alloc_host_pinned and free_host_pinned are device::Driver's, and
// reserve_decode_block and release_decode_blocks the router's, which owns the KV pool.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "device/driver.h"
#include "messages/effect.h"
#include "messages/facts.h"
#include "messages/lora.h"
#include "messages/model_info.h"
#include "messages/plan.h"
#include "messages/result.h"

namespace troupe::device {

// What one step's rows read and write; the model's view of a LaunchedStep. All of it stays valid and unchanged until
// the step has settled. The model allocates no block and sees no sequence.
struct StepView {
  Ticket ticket;
  std::uint32_t tag = 0;                   // the ticket's, for its feed cells
  std::span<const DeviceRow> rows;         // host view
  std::span<const Token> tokens;           // host view, indexed by rows with a host source
  std::span<const TableDelta> deltas;      // applied to the device-side block tables before the rows run
  std::span<const RowSample> samples;      // host view; how the rows that are sampled are
  std::span<const TokenBias> biases;       // host view, indexed by samples
  DevicePtr cells = 0;                     // this step's feed cells
  std::span<const DevicePtr> cell_arrays;  // by ring slot; DeviceRow::feed_cells indexes it
  void* upload = nullptr;                  // page-locked, upload_bytes(): the model's until the step has settled (R4)
};

// Where argmax_batch_to_feed and sample_batch_to_feed put what the host reads.
struct ReadbackTarget {
  Readback* rows = nullptr;          // page-locked, [rows]
  float* logits = nullptr;           // page-locked, [n_logits][vocab]; by DeviceRow::logits_row
  ReadLogprobs* logprobs = nullptr;  // page-locked, [n_logprobs]; by RowSample::logprobs_row
};

// One model on one device. The stream actor of `stream` calls everything that takes a stream; load and unload are
// called by the thread that owns the model's life. Calls enqueue and return; nothing here waits for the device.
class ModelDeviceFeed {
 public:
  virtual ~ModelDeviceFeed() = default;

  virtual const ModelInfo& info() const = 0;
  // Bytes of one feed-cell array (max_rows cells).
  virtual std::size_t cells_bytes() const = 0;
  // Page-locked bytes by which the model sends a step's parameters to its device; 0 = it needs none.
  virtual std::size_t upload_bytes() const { return 0; }

  // The feed for steps of prefill on a stream of their own: the same weights, KV, block tables and adapters, and all that a step
  // computes in apart. It is this model's and goes with it. Its actor calls decode_batch_fed, argmax_batch_to_feed,
  // sample_batch_to_feed and fed_step_settled of it beside the calls of this one; rows of two steps in flight on the two streams have
  // no sequence in common. Null: info().streams is below 3.
  virtual ModelDeviceFeed* prefill_feed() { return nullptr; }

  // Whether decode_batch_fed and argmax_batch_to_feed work with rows fed on the device.
  virtual bool supports_device_token_feed() const { return false; }

  // Enqueues the forward pass over step.rows: applies the table deltas, resolves each row's ids (host ids, or the
  // named cell, whose tag is compared always: a mismatch or an error feeds id 0 and poisons the row's own cell),
  // writes KV at each row's positions, and computes the logits of the last position of each row that wants a token.
  // Returns a handle for argmax_batch_to_feed.
  virtual Result<DevicePtr> decode_batch_fed(const StepView& step, Stream stream) {
    (void)step, (void)stream;
    return Error{ErrorCode::unsupported, "this model has no device token feed: run it with --depth 1 on a model that has decode_batch_fed"};
  }

  // Masked argmax per row into the step's feed cells, then asynchronous copies of the rows' Readback and of the asked
  // logits to `dst`, then records `event`. Never synchronises; `dst` is valid only once `event` completes.
  virtual Result<void> argmax_batch_to_feed(DevicePtr logits, const StepView& step, ReadbackTarget dst, Event event, Stream stream) {
    (void)logits, (void)step, (void)dst, (void)event, (void)stream;
    return Error{ErrorCode::unsupported, "this model has no device token feed: argmax_batch_to_feed is not implemented"};
  }

  // The same for a step some of whose rows are sampled, as their RowSample says; the others are as argmax_batch_to_feed has
  // them. From equal logits the token is the one that host sampling chooses, bit for bit (kernels/sampling.h), whatever else
  // is in the step. ModelInfo::supports_device_sampling.
  virtual Result<void> sample_batch_to_feed(DevicePtr logits, const StepView& step, ReadbackTarget dst, Event event, Stream stream) {
    (void)logits, (void)step, (void)dst, (void)event, (void)stream;
    return Error{ErrorCode::unsupported, "this model does not sample on the device: let the sampler choose"};
  }

  // LoRA adapters (R9): slots 1 .. info().max_loras + 1 (one is loaded while the others serve); slot 0 is the base model. Rows may name the
  // slots in the table only. Reads the PEFT folder `path` and writes it into a slot that is not in the table, which no step reads. Any
  // thread, one call at a time; returns when it is written. bad_file, unsupported, not_found, rank_too_large, slot_in_use: the slot is as
  // it was, or empty.
  virtual Result<void> load_adapter(std::uint32_t slot, const std::string& path) {
    (void)slot, (void)path;
    return Error{ErrorCode::unsupported, "this model has no adapters"};
  }
  // What a loaded slot holds, for load_adapter_image() of a model with the same dimensions on any device. Any thread, as
  // load_adapter; returns when it is read. The slot may be in the table, and must stay loaded meanwhile. not_found.
  virtual Result<AdapterImage> read_adapter(std::uint32_t slot) {
    (void)slot;
    return Error{ErrorCode::unsupported, "this model cannot read an adapter out of its memory; load it from its folder"};
  }
  // As load_adapter, of what read_adapter() gave, which may have come from another machine.
  virtual Result<void> load_adapter_image(std::uint32_t slot, const AdapterImage& image) {
    (void)slot, (void)image;
    return Error{ErrorCode::unsupported, "this model cannot take an adapter from another's memory; load it from its folder"};
  }
  // The change of the table, which is all that the quiet window holds: shows a loaded slot, or takes one out, which then
  // is empty. By the stream actor, while no step in flight names the slot.
  virtual Result<void> show_adapter(std::uint32_t slot) {
    (void)slot;
    return Error{ErrorCode::unsupported, "this model has no adapters"};
  }
  virtual Result<void> hide_adapter(std::uint32_t slot) {
    (void)slot;
    return Error{ErrorCode::unsupported, "this model has no adapters"};
  }

  // Bytes of one block's KV over all layers, as the copies below pack it; 0 = this model cannot copy blocks.
  virtual std::size_t kv_block_bytes() const { return 0; }
  // Enqueues copies of whole blocks to and from page-locked memory [blocks][kv_block_bytes()], after what is on the
  // stream and before what comes later. `blocks` is read before this returns; the memory is in use until the stream has
  // passed. An error: nothing was enqueued. With info().streams 2 the stream may be another than the steps', and another actor's,
  // which calls these and the two below beside the rest.
  virtual Result<void> copy_blocks_out(std::span<const BlockId> blocks, void* to, Stream stream) {
    (void)blocks, (void)to, (void)stream;
    return Error{ErrorCode::unsupported, "this model cannot copy KV blocks"};
  }
  virtual Result<void> copy_blocks_in(std::span<const BlockId> blocks, const void* from, Stream stream) {
    (void)blocks, (void)from, (void)stream;
    return Error{ErrorCode::unsupported, "this model cannot copy KV blocks"};
  }

  // Of a model with recurrent layers: bytes of one version of a sequence's state, over all of them; 0 = it cannot be copied.
  virtual std::size_t ssm_state_bytes() const { return 0; }
  // The same for bytes [begin, begin + bytes) of a version that no step writes while they are copied out, or reads or writes while
  // they are copied in. bad_plan: beyond its end.
  virtual Result<void> copy_state_out(std::uint32_t version, std::size_t begin, std::size_t bytes, void* to, Stream stream) {
    (void)version, (void)begin, (void)bytes, (void)to, (void)stream;
    return Error{ErrorCode::unsupported, "this model cannot copy recurrent state"};
  }
  virtual Result<void> copy_state_in(std::uint32_t version, std::size_t begin, std::size_t bytes, const void* from, Stream stream) {
    (void)version, (void)begin, (void)bytes, (void)from, (void)stream;
    return Error{ErrorCode::unsupported, "this model cannot copy recurrent state"};
  }

  // The stream has passed whatever of the step was enqueued, also of one whose enqueueing failed half-way: what it pinned (its
  // upload memory, a captured graph) may be used again. Of a step that is not known: nothing.
  virtual void fed_step_settled(Ticket ticket) { (void)ticket; }
};

// The router's interface as direct calls. The actors speak it as messages (messages/protocol.h): launch = Launch ->
// Accepted, await_result = Await -> Settled, apply = Apply -> Applied. tools/bench implements it without mailboxes, as
// the baseline of what they cost.
class DeviceIo {
 public:
  virtual ~DeviceIo() = default;
  virtual const ModelInfo& model() const = 0;
  virtual DeviceFacts facts() const = 0;
  virtual std::uint32_t max_depth() const = 0;
  virtual std::variant<Ticket, DeviceError> launch(Shared<StepPlan> plan) = 0;
  virtual Shared<StepResult> await_result(Ticket ticket) = 0;  // StepResult::error on failure
  virtual std::variant<EffectOutcome, DeviceError> apply(const Effect& effect) = 0;
  virtual std::variant<LoraAck, DeviceError> lora(const LoraCommand& command) = 0;
  virtual Result<void> teardown() = 0;  // consumes: later calls answer closed
};

}  // namespace troupe::device
