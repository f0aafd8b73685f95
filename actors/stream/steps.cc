#include "actors/stream/steps.h"

#include <string>
#include <utility>

namespace troupe::actors {

Steps::Steps(device::Driver& driver, device::ModelDeviceFeed& model, std::shared_ptr<Counts> counts, std::uint32_t first_slot,
             std::uint32_t n_slots, bool alone)
    : driver_(driver), model_(model), first_slot_(first_slot), alone_(alone) {
  for (std::uint32_t i = 0; i < n_slots; ++i) slots_.push_back(std::make_unique<Slot>(counts, first_slot + i));
}

void Steps::attach(const DeviceActor& device) {
  for (auto& slot : slots_) slot->device = device;
}

void Steps::attach(device::Stream stream, std::vector<device::DevicePtr> cells) {
  stream_ = stream;
  cells_ = std::move(cells);
}

Watch Steps::enqueue(const Enqueue& m, std::uint64_t cause, Announcer& announcer) {
  const LaunchedStep& step = *m.step;
  Watch watch;
  watch.ticket = step.ticket;
  watch.ring_slot = step.slot.slot;
  watch.n_rows = static_cast<std::uint32_t>(step.rows.size());
  watch.n_logits = step.n_logits;
  watch.n_logprobs = step.n_logprobs;
  Result<void> done = success();
  if (step.slot.slot >= first_slot_ && step.slot.slot - first_slot_ < slots_.size()) {
    Slot& slot = *slots_[step.slot.slot - first_slot_];
    settle(slot);
    slot.step = m.step;
    slot.ticket = step.ticket;
    slot.post.caused_by(cause);
    done = put(step, slot, announcer);
    watch.on_stream = !done && done.error().code != ErrorCode::device_lost && mark_end(step, slot, announcer);
    slot.enqueued = done.has_value() || watch.on_stream;
    if (slot.enqueued) {
      slot.orphans.swap(orphans_);
    } else {
      orphans_.push_back(std::move(slot.step));
      if (!alone_ && done.error().code != ErrorCode::device_lost) {
        done = Error{ErrorCode::device_lost, done.error().what + "; and nothing says when what is on the stream of it is over"};
      }
    }
  } else {
    done = Error{ErrorCode::internal, "the step names ring slot " + std::to_string(step.slot.slot) + ", which this stream does not have"};
  }
  if (!done) watch.error = DeviceError{DeviceError::Phase::forward, done.error().code, 0, 0, done.error().what};
  return watch;
}

Result<void> Steps::bind() {
  if (!bound_) {
    TROUPE_TRY(driver_.bind_thread());
    bound_ = true;
  }
  return success();
}

Result<void> Steps::put(const LaunchedStep& step, Slot& slot, Announcer& announcer) {
  TROUPE_TRY(bind());
  device::StepView view;
  view.ticket = step.ticket;
  view.tag = step.ticket.tag();
  view.rows = step.rows;
  view.tokens = step.tokens;
  view.deltas = step.deltas;
  view.samples = step.samples;
  view.biases = step.biases;
  view.cells = step.slot.cells;
  view.cell_arrays = cells_;
  view.upload = reinterpret_cast<void*>(static_cast<std::uintptr_t>(step.slot.upload));
  device::ReadbackTarget target;
  target.rows = reinterpret_cast<Readback*>(static_cast<std::uintptr_t>(step.slot.readback));
  target.logits = reinterpret_cast<float*>(static_cast<std::uintptr_t>(step.slot.logits));
  target.logprobs = reinterpret_cast<ReadLogprobs*>(static_cast<std::uintptr_t>(step.slot.logprobs));
  TROUPE_TRY(auto logits, model_.decode_batch_fed(view, stream_));
  if (step.samples.empty()) {
    TROUPE_TRY(model_.argmax_batch_to_feed(logits, view, target, step.slot.event, stream_));
  } else {
    TROUPE_TRY(model_.sample_batch_to_feed(logits, view, target, step.slot.event, stream_));
  }
  return announcer.ask(step.slot.event, stream_, slot);
}

// Of a step that could not be enqueued whole: its event behind what was enqueued of it, so that its slot is used again only
// when the stream has passed that (R4).
bool Steps::mark_end(const LaunchedStep& step, Slot& slot, Announcer& announcer) {
  return bound_ && driver_.record_event(step.slot.event, stream_) && announcer.ask(step.slot.event, stream_, slot);
}

void Steps::settle(Slot& slot) {
  if (std::exchange(slot.enqueued, false)) model_.fed_step_settled(slot.ticket);
  slot.step = {};
  for (const Shared<LaunchedStep>& orphan : slot.orphans) model_.fed_step_settled(orphan->ticket);
  slot.orphans.clear();
}

void Steps::settle_all() {
  for (auto& slot : slots_) settle(*slot);
}

}  // namespace troupe::actors
