// What the device actor owns: one stream, and per slot of the ring an event, page-locked readback, logits and upload
// areas and an array of feed cells. Made at start, given back at stop; nothing is made in between.
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

class Ring {
 public:
  // `cells_bytes`: of one feed-cell array (ModelDeviceFeed::cells_bytes).
  Ring(device::Driver& driver, const ModelInfo& model, std::size_t cells_bytes, std::uint32_t n_slots);

  // On an error what was already made is given back.
  Result<void> make();
  // Idempotent. Error: what was not given back. While the stream still has work nothing is freed; call again later.
  // On a lost device it goes on after an error and answers the first one.
  Result<void> destroy();

  device::Stream stream() const { return stream_; }
  const std::vector<SlotHandles>& slots() const { return slots_; }

  // The slot's rows as a result of the step, logits left in place. A row whose tag is not the ticket's was not written
  // by this step: device_failed.
  Shared<StepResult> read(const ReadSlot& slot);

 private:
  Result<void> make_slot(std::uint32_t index);
  std::size_t readback_bytes() const;
  std::size_t logits_bytes() const;
  std::size_t upload_bytes() const;

  device::Driver& driver_;
  std::uint32_t max_rows_, max_logits_rows_, max_step_tokens_, vocab_;
  std::size_t cells_bytes_;
  std::uint32_t n_slots_;
  device::Stream stream_ = 0;
  std::vector<SlotHandles> slots_;
  Pool<StepResult> results_;
};

}  // namespace troupe::actors
