#include "actors/device/core.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace troupe::actors {

struct DeviceCore::State {
  // What is known of the step that uses a ring slot now, or used it last.
  struct Slot {
    Ticket ticket;     // of the step that is open; none: idle
    Ticket last_read;  // answered last
    bool watched = false;
    bool done = false;   // the event's completion came first
    bool ready = false;  // to be read, with `error`, once no older step is open
    TimeNs since = 0;    // of the watch
    std::uint32_t n_rows = 0;
    std::uint32_t n_logits = 0;
    std::uint32_t n_logprobs = 0;
    DeviceError error;  // watched: why its enqueueing failed; done: what the stream reported; ready: what is answered
  };

  std::vector<Slot> slots;  // the ring's, then one per place for a copy
  std::uint32_t ring_slots = 0;
  std::uint32_t compute_slots = 0;  // of those the first, which are not the prefill stream's
  TimeNs step_timeout = 0;
  std::uint64_t ignored = 0;
  bool armed = false;
  DeviceError lost;  // code none: alive

  // Results leave in the order of the stream: a step that could not be enqueued waits for those before it.
  void answer(Slot& slot, DeviceError error, DeviceOutbox& out) {
    slot.ready = true;
    slot.error = std::move(error);
    const auto compute_end = slots.begin() + compute_slots, ring_end = slots.begin() + ring_slots;
    if (&slot >= slots.data() + ring_slots)
      flush(ring_end, slots.end(), out);
    else if (&slot >= slots.data() + compute_slots)
      flush(compute_end, ring_end, out);
    else
      flush(slots.begin(), compute_end, out);
  }
  void flush(std::vector<Slot>::iterator begin, std::vector<Slot>::iterator end, DeviceOutbox& out) {
    for (;;) {
      Slot* first = nullptr;
      for (auto slot = begin; slot != end; ++slot) {
        if (slot->ticket != Ticket{} && (first == nullptr || slot->ticket < first->ticket)) first = &*slot;
      }
      if (first == nullptr || !first->ready) return;
      push(static_cast<std::uint32_t>(first - slots.data()), first->ticket, first->n_rows, first->n_logits, first->n_logprobs,
           std::move(first->error), out);
      first->last_read = first->ticket;
      first->ticket = {};
      first->watched = first->done = first->ready = false;
      first->error = {};
    }
  }

  void push(std::uint32_t index, Ticket ticket, std::uint32_t n_rows, std::uint32_t n_logits, std::uint32_t n_logprobs, DeviceError error,
            DeviceOutbox& out) const {
    if (index < ring_slots)
      out.push(ReadSlot{ticket, index, n_rows, n_logits, std::move(error), n_logprobs});
    else
      out.push(CopyDone{{}, ticket, index - ring_slots, std::move(error)});
  }

  // The slot whose watch is oldest and waits for its event, or size().
  std::size_t oldest() const {
    std::size_t best = slots.size();
    for (std::size_t i = 0; i < slots.size(); ++i) {
      if (!slots[i].watched || slots[i].ready) continue;
      if (best == slots.size() || slots[i].since < slots[best].since ||
          (slots[i].since == slots[best].since && slots[i].ticket < slots[best].ticket)) {
        best = i;
      }
    }
    return best;
  }

  void lose(std::string what, DeviceOutbox& out) {
    if (lost.code != ErrorCode::none) return;
    lost.phase = DeviceError::Phase::readback;
    lost.code = ErrorCode::device_lost;
    lost.what = std::move(what);
    for (std::size_t i = oldest(); i != slots.size(); i = oldest()) answer(slots[i], lost, out);
  }

  void arm(TimeNs now, DeviceOutbox& out) {
    if (armed || step_timeout <= 0 || lost.code != ErrorCode::none) return;
    const std::size_t i = oldest();
    if (i == slots.size()) return;
    armed = true;
    out.push(SetTimer{std::max(now, slots[i].since + step_timeout)});
  }
};

DeviceCore::DeviceCore(std::uint32_t ring_slots, TimeNs step_timeout, std::uint32_t copy_places, std::uint32_t prefill_slots)
    : s_(std::make_unique<State>()) {
  s_->slots.resize(ring_slots + copy_places);
  s_->ring_slots = ring_slots;
  s_->compute_slots = ring_slots - std::min(prefill_slots, ring_slots);
  s_->step_timeout = step_timeout;
}

DeviceCore::~DeviceCore() = default;

void DeviceCore::on(const Watch& m, TimeNs now, DeviceOutbox& out) {
  const auto refuse = [&](ErrorCode code, std::string what) {
    DeviceError error{DeviceError::Phase::readback, code, 0, 0, std::move(what)};
    if (m.ring_slot < s_->slots.size())
      s_->push(m.ring_slot, m.ticket, m.n_rows, m.n_logits, m.n_logprobs, std::move(error), out);
    else
      out.push(ReadSlot{m.ticket, m.ring_slot, m.n_rows, m.n_logits, std::move(error), m.n_logprobs});
  };
  if (m.ring_slot >= s_->slots.size()) {
    refuse(ErrorCode::internal,
           "watch of ring slot " + std::to_string(m.ring_slot) + ", and there are " + std::to_string(s_->slots.size()));
    return;
  }
  State::Slot& slot = s_->slots[m.ring_slot];
  if (m.ticket <= slot.last_read || (slot.watched && m.ticket == slot.ticket)) {
    ++s_->ignored;
    return;
  }
  if (slot.watched) {  // overwriting it would lose a step (R4)
    refuse(ErrorCode::internal, "ring slot " + std::to_string(m.ring_slot) + " still holds " + label(slot.ticket));
    return;
  }
  if (slot.ticket != m.ticket) {
    if (slot.done) ++s_->ignored;  // a completion that no watch ever claimed
    slot.done = false;
    slot.error = {};
  }
  slot.ticket = m.ticket;
  slot.n_rows = m.n_rows;
  slot.n_logits = m.n_logits;
  slot.n_logprobs = m.n_logprobs;
  if (s_->lost.code != ErrorCode::none) {
    slot.watched = true;
    s_->answer(slot, s_->lost, out);
  } else if (m.error.code != ErrorCode::none && (!m.on_stream || slot.done || m.error.code == ErrorCode::device_lost)) {
    slot.watched = true;
    s_->answer(slot, m.error, out);
    if (m.error.code == ErrorCode::device_lost) s_->lose(m.error.what, out);
  } else if (slot.done) {
    slot.watched = true;
    s_->answer(slot, std::move(slot.error), out);
  } else {
    slot.watched = true;
    slot.since = now;
    slot.error = m.error;
    s_->arm(now, out);
  }
}

void DeviceCore::on(const EventDone& m, TimeNs, DeviceOutbox& out) {
  if (m.ring_slot >= s_->slots.size()) {
    ++s_->ignored;
    return;
  }
  State::Slot& slot = s_->slots[m.ring_slot];
  const bool other = slot.ticket != Ticket{} && slot.ticket != m.ticket;
  if (m.ticket <= slot.last_read || slot.done || slot.ready || other) {
    ++s_->ignored;
    return;
  }
  if (slot.watched) {
    const bool failed_before = slot.error.code != ErrorCode::none && m.error.code != ErrorCode::device_lost;
    s_->answer(slot, failed_before ? slot.error : m.error, out);
  } else {
    slot.ticket = m.ticket;
    slot.done = true;
    slot.error = m.error;
  }
  if (m.error.code == ErrorCode::device_lost) s_->lose(m.error.what, out);
}

void DeviceCore::on(const Tick&, TimeNs now, DeviceOutbox& out) {
  s_->armed = false;
  if (s_->step_timeout <= 0) return;
  const std::size_t i = s_->oldest();
  if (i == s_->slots.size()) return;
  const State::Slot& slot = s_->slots[i];
  if (now - slot.since >= s_->step_timeout) {
    const char* what = &slot < s_->slots.data() + s_->ring_slots ? "step " : "copy ";
    s_->lose(what + label(slot.ticket) + " has not completed for " + std::to_string((now - slot.since) / 1000000) +
                 " ms; the device does not answer: restart the runtime on another device, or raise step_timeout",
             out);
  } else {
    s_->arm(now, out);
  }
}

std::uint32_t DeviceCore::watched() const {
  std::uint32_t n = 0;
  for (const State::Slot& slot : s_->slots) n += slot.watched ? 1 : 0;
  return n;
}

bool DeviceCore::lost() const { return s_->lost.code != ErrorCode::none; }

std::uint64_t DeviceCore::ignored() const { return s_->ignored; }

}  // namespace troupe::actors
