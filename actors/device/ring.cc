#include "actors/device/ring.h"

#include <algorithm>
#include <string>
#include <utility>

namespace troupe::actors {
namespace {

template <class T>
T* as_pointer(std::uint64_t handle) {
  return reinterpret_cast<T*>(static_cast<std::uintptr_t>(handle));
}
std::uint64_t as_handle(void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

}  // namespace

Ring::Ring(device::Driver& driver, const ModelInfo& model, const SlotBytes& bytes, std::uint32_t n_slots, const CopyPlaces& places,
           std::uint32_t prefill_slots)
    : driver_(driver),
      max_rows_(model.max_rows),
      max_logits_rows_(model.max_logits_rows),
      vocab_(model.vocab_size),
      samples_(model.supports_device_sampling),
      bytes_(bytes),
      n_slots_(n_slots),
      prefill_slots_(prefill_slots),
      copy_places_(places) {}

std::size_t Ring::readback_bytes() const { return std::size_t{max_rows_} * sizeof(Readback); }
std::size_t Ring::logits_bytes() const { return std::size_t{max_logits_rows_} * vocab_ * sizeof(float); }

std::size_t Ring::logprobs_bytes() const { return samples_ ? std::size_t{max_rows_} * sizeof(ReadLogprobs) : 0; }

Result<void> Ring::make() {
  auto made = [&]() -> Result<void> {
    TROUPE_TRY(driver_.bind_thread());
    // Prefill takes what the short steps leave.
    TROUPE_TRY(stream_, driver_.create_stream(prefill_slots_ != 0 ? device::StreamPriority::high : device::StreamPriority::normal));
    if (prefill_slots_ != 0) {
      TROUPE_TRY(prefill_stream_, driver_.create_stream());
    }
    if (copy_places_.count != 0 && copy_places_.own_stream) {
      TROUPE_TRY(copy_stream_, driver_.create_stream());
    }
    slots_.reserve(n_slots_);
    for (std::uint32_t i = 0; i < n_slots_; ++i) {
      TROUPE_TRY(make_slot(i));
    }
    for (std::uint32_t i = 0; i < copy_places_.count; ++i) {
      TROUPE_TRY(make_place(i));
    }
    return success();
  }();
  if (!made) (void)destroy();
  return made;
}

Result<void> Ring::make_slot(std::uint32_t index) {
  SlotHandles& slot = slots_.emplace_back();
  slot.slot = index;
  slot.stream = index + prefill_slots_ >= n_slots_ ? kPrefillStream : kComputeStream;
  TROUPE_TRY(slot.event, driver_.create_event());
  TROUPE_TRY(void* readback, driver_.alloc_host_pinned(readback_bytes()));
  slot.readback = as_handle(readback);
  if (logits_bytes() != 0) {
    TROUPE_TRY(void* logits, driver_.alloc_host_pinned(logits_bytes()));
    slot.logits = as_handle(logits);
  }
  if (logprobs_bytes() != 0) {
    TROUPE_TRY(void* logprobs, driver_.alloc_host_pinned(logprobs_bytes()));
    slot.logprobs = as_handle(logprobs);
  }
  if (bytes_.upload != 0) {
    TROUPE_TRY(void* upload, driver_.alloc_host_pinned(bytes_.upload));
    slot.upload = as_handle(upload);
  }
  TROUPE_TRY(slot.cells, driver_.alloc_device(bytes_.cells));
  return success();
}

Result<void> Ring::make_place(std::uint32_t index) {
  CopyHandles& place = places_.emplace_back();
  place.place = index;
  place.blocks = copy_places_.blocks;
  place.block_bytes = copy_places_.block_bytes;
  place.state_parts = copy_places_.state_parts;
  TROUPE_TRY(place.event, driver_.create_event());
  if (copy_stream_ != 0) {
    TROUPE_TRY(place.order, driver_.create_event());
  }
  TROUPE_TRY(void* staging, driver_.alloc_host_pinned(staging_bytes()));
  place.staging = as_handle(staging);
  return success();
}

Result<void> Ring::destroy() {
  Result<void> first = success();
  const auto keep = [&](Result<void> r) {
    if (!r && first) first = std::move(r);
  };
  // The streams first: after them no thread of the driver is in a call of ours, and nothing writes to the areas.
  for (device::Stream* const stream : {&copy_stream_, &prefill_stream_, &stream_}) {
    if (*stream == 0) continue;
    auto gone = driver_.destroy_stream(*stream);
    if (!gone && gone.error().code != ErrorCode::device_lost) return gone;
    keep(std::move(gone));
    *stream = 0;
  }
  for (SlotHandles& slot : slots_) {
    if (slot.event != 0) keep(driver_.destroy_event(slot.event));
    if (slot.readback != 0) keep(driver_.free_host_pinned(as_pointer<void>(slot.readback), readback_bytes()));
    if (slot.logits != 0) keep(driver_.free_host_pinned(as_pointer<void>(slot.logits), logits_bytes()));
    if (slot.logprobs != 0) keep(driver_.free_host_pinned(as_pointer<void>(slot.logprobs), logprobs_bytes()));
    if (slot.upload != 0) keep(driver_.free_host_pinned(as_pointer<void>(slot.upload), bytes_.upload));
    if (slot.cells != 0) keep(driver_.free_device(slot.cells, bytes_.cells));
  }
  for (CopyHandles& place : places_) {
    if (place.event != 0) keep(driver_.destroy_event(place.event));
    if (place.order != 0) keep(driver_.destroy_event(place.order));
    if (place.staging != 0) keep(driver_.free_host_pinned(as_pointer<void>(place.staging), staging_bytes()));
  }
  slots_.clear();
  places_.clear();
  return first;
}

Shared<StepResult> Ring::read(const ReadSlot& m) {
  auto draft = results_.draft();
  draft->ticket = m.ticket;
  draft->error = m.error;
  if (m.error.code != ErrorCode::none) return std::move(draft).freeze();
  const auto refuse = [&](std::uint32_t row, std::string what) {
    draft->rows.clear();
    draft->error = DeviceError{DeviceError::Phase::readback, ErrorCode::device_failed, row, 0, std::move(what)};
    return std::move(draft).freeze();
  };
  if (m.ring_slot >= slots_.size() || m.n_rows > max_rows_ || m.n_logits > max_logits_rows_ || m.n_logprobs > (samples_ ? max_rows_ : 0)) {
    return refuse(0, "the step names ring slot " + std::to_string(m.ring_slot) + " with " + std::to_string(m.n_rows) +
                         " rows: the ring has no such place");
  }
  const SlotHandles& slot = slots_[m.ring_slot];
  const auto* rows = as_pointer<const Readback>(slot.readback);
  draft->rows.assign(rows, rows + m.n_rows);
  const std::uint32_t tag = m.ticket.tag();
  for (std::uint32_t i = 0; i < m.n_rows; ++i) {
    if (rows[i].tag != tag) return refuse(i, "row " + std::to_string(i) + " read back another step's tag: the device did not write it");
  }
  const auto* logprobs = as_pointer<const ReadLogprobs>(slot.logprobs);
  for (std::uint32_t i = 0; i < m.n_logprobs; ++i) {
    const std::uint32_t n = std::min(logprobs[i].n_best, ReadLogprobs::kMaxBest);
    draft->logprobs.push_back({logprobs[i].chosen, static_cast<std::uint32_t>(draft->best.size()), n});
    for (std::uint32_t k = 0; k < n; ++k) draft->best.push_back({logprobs[i].ids[k], logprobs[i].best[k]});
  }
  draft->logits = LogitsView{m.n_logits == 0 ? nullptr : as_pointer<const float>(slot.logits), m.n_logits, vocab_};
  return std::move(draft).freeze();
}

}  // namespace troupe::actors
