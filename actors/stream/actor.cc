#include "actors/stream/actor.h"

#include <string>
#include <utility>

namespace troupe::actors {

StreamShell::StreamShell(caf::actor_config& config, std::shared_ptr<Counts> counts, const StreamSetup& setup)
    : AtHome(config, counts->home),
      driver_(*setup.driver),
      model_(*setup.model),
      announcer_(driver_),
      copies_(driver_, model_, counts, setup.ring_slots, setup.copy_places),
      post_(Sender::stream, counts) {
  keep_quiet(*this);
  for (std::uint32_t i = 0; i < setup.ring_slots; ++i) slots_.push_back(std::make_unique<Slot>(counts, i));
}

StreamShell::behavior_type StreamShell::make_behavior() {
  return {
      [this](const Attach& m) {
        peers_ = m.peers;
        for (auto& slot : slots_) slot->device = peers_->device;
        copies_.attach(peers_->device);
      },
      [this](const AttachStream& m) {
        stream_ = m.stream;
        cells_ = m.cells;
        (void)bind();  // an error comes back with the first step
      },
      [this](const Enqueue& m) { enqueue(m); },
      [this](const ChangeTable& m) { change(m); },
      [this](const CopyBlocks& m) { enqueue(m); },
      [this](const RecordEvent& m) { record(m); },
      [this](const StopDevice&) {
        settle_all();
        return Done{};
      },
  };
}

void StreamShell::enqueue(const Enqueue& m) {
  post_.handling(m, now_ns());
  const LaunchedStep& step = *m.step;
  Watch watch;
  watch.ticket = step.ticket;
  watch.ring_slot = step.slot.slot;
  watch.n_rows = static_cast<std::uint32_t>(step.rows.size());
  watch.n_logits = step.n_logits;
  watch.n_logprobs = step.n_logprobs;
  Result<void> done = success();
  if (step.slot.slot < slots_.size()) {
    Slot& slot = *slots_[step.slot.slot];
    settle(slot);
    slot.step = m.step;
    slot.ticket = step.ticket;
    slot.post.caused_by(post_.cause());
    done = enqueue(step, slot);
    watch.on_stream = !done && done.error().code != ErrorCode::device_lost && mark_end(step, slot);
    slot.enqueued = done.has_value() || watch.on_stream;
    if (slot.enqueued) {
      slot.orphans.swap(orphans_);
    } else {
      orphans_.push_back(std::move(slot.step));
    }
  } else {
    done = Error{ErrorCode::internal, "the step names ring slot " + std::to_string(step.slot.slot) + ", which does not exist"};
  }
  if (!done) watch.error = DeviceError{DeviceError::Phase::forward, done.error().code, 0, 0, done.error().what};
  post_.send(peers_->device, std::move(watch), context());
}

// No step on the stream names either slot (R9). If the new one cannot be shown, the old one stays.
void StreamShell::change(const ChangeTable& m) {
  post_.handling(m, now_ns());
  TableChanged done;
  Result<void> changed = success();
  if (m.show.slot != 0) changed = model_.show_adapter(m.show.slot);
  if (changed && m.hide.slot != 0) changed = model_.hide_adapter(m.hide.slot);
  if (!changed) done.error = changed.error();
  post_.send(peers_->router, std::move(done), context());
}

// Nothing is enqueued by a thread that is not bound: it would be on another device.
Result<void> StreamShell::bind() {
  if (!bound_) {
    TROUPE_TRY(driver_.bind_thread());
    bound_ = true;
  }
  return success();
}

Result<void> StreamShell::enqueue(const LaunchedStep& step, Slot& slot) {
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
  return announcer_.ask(step.slot.event, stream_, slot);
}

// Of a step that could not be enqueued whole: its event behind what was enqueued of it, so that its slot is used again only
// when the stream has passed that (R4).
bool StreamShell::mark_end(const LaunchedStep& step, Slot& slot) {
  return bound_ && driver_.record_event(step.slot.event, stream_) && announcer_.ask(step.slot.event, stream_, slot);
}

void StreamShell::enqueue(const CopyBlocks& m) {
  post_.handling(m, now_ns());
  post_.send(peers_->device, copies_.enqueue(m, stream_, bind(), post_.cause(), announcer_), context());
}

void StreamShell::record(const RecordEvent& m) {
  post_.handling(m, now_ns());
  EventRecorded recorded;
  recorded.mark = m.mark;
  recorded.place = m.place;
  Result<void> done = bind();
  if (done) done = driver_.record_event(m.event, stream_);
  if (!done) recorded.error = done.error();
  post_.send(peers_->router, std::move(recorded), context());
}

void StreamShell::settle(Slot& slot) {
  if (std::exchange(slot.enqueued, false)) model_.fed_step_settled(slot.ticket);
  slot.step = {};
  for (const Shared<LaunchedStep>& orphan : slot.orphans) model_.fed_step_settled(orphan->ticket);
  slot.orphans.clear();
}

void StreamShell::settle_all() {
  for (auto& slot : slots_) settle(*slot);
}

// The slots keep their hold on the device actor: a thread of the driver may still be about to use it.
void StreamShell::on_exit() { peers_.reset(); }

}  // namespace troupe::actors
