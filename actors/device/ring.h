// What the device actor owns: the compute stream, and one for copies and one for prefill if they have their own; per slot of the ring
// an event, page-locked readback, logits, log-probabilities and upload areas and an array of feed cells (the last slots are the prefill
// stream's); and per place for a copy of KV blocks an event, one more that orders it behind the compute stream
// if it has another, and page-locked memory. Made at start, given back at stop;
// nothing is made in between.
//
// Thread: the device actor's. Nothing here waits for the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device/driver.h"
#include "messages/model_info.h"
#include "messages/protocol.h"

namespace troupe::actors {

// Where KV blocks are copied to and from.
struct CopyPlaces {
  std::uint32_t count = 0;
  std::uint32_t blocks = 0;     // that one place holds
  std::size_t block_bytes = 0;  // ModelDeviceFeed::kv_block_bytes
  bool own_stream = false;
  std::uint32_t state_parts = 0;  // CopyHandles::state_parts
};

// Of one slot, as the model says: ModelDeviceFeed::cells_bytes and upload_bytes.
struct SlotBytes {
  std::size_t cells = 0;
  std::size_t upload = 0;
};

class Ring {
 public:
  // Of `n_slots` the last `prefill_slots` are for steps on a stream of their own; 0: there is none.
  Ring(device::Driver& driver, const ModelInfo& model, const SlotBytes& bytes, std::uint32_t n_slots, const CopyPlaces& places = {},
       std::uint32_t prefill_slots = 0);

  // On an error what was already made is given back.
  Result<void> make();
  // Idempotent. Error: what was not given back. While a stream still has work nothing is freed; call again later.
  // On a lost device it goes on after an error and answers the first one.
  Result<void> destroy();

  device::Stream stream() const { return stream_; }
  device::Stream copy_stream() const { return copy_stream_; }        // 0: copies go on stream()
  device::Stream prefill_stream() const { return prefill_stream_; }  // 0: all steps go on stream()
  const std::vector<SlotHandles>& slots() const { return slots_; }
  const std::vector<CopyHandles>& places() const { return places_; }
  // Of a slot, or (after the slots) of a place.
  device::Event event(std::uint32_t slot) const { return slot < slots_.size() ? slots_[slot].event : places_[slot - slots_.size()].event; }

  // The slot's rows as a result of the step, logits left in place. A row whose tag is not the ticket's was not written
  // by this step: device_failed.
  Shared<StepResult> read(const ReadSlot& slot);

 private:
  Result<void> make_slot(std::uint32_t index);
  Result<void> make_place(std::uint32_t index);
  std::size_t staging_bytes() const { return copy_places_.blocks * copy_places_.block_bytes; }
  std::size_t readback_bytes() const;
  std::size_t logits_bytes() const;
  std::size_t logprobs_bytes() const;

  device::Driver& driver_;
  std::uint32_t max_rows_, max_logits_rows_, vocab_;
  bool samples_;
  SlotBytes bytes_;
  std::uint32_t n_slots_, prefill_slots_;
  CopyPlaces copy_places_;
  device::Stream stream_ = 0, copy_stream_ = 0, prefill_stream_ = 0;
  std::vector<SlotHandles> slots_;
  std::vector<CopyHandles> places_;
  Pool<StepResult> results_;
};

}  // namespace troupe::actors
