#include "actors/stream/copies.h"

#include <algorithm>
#include <string>
#include <utility>

namespace troupe::actors {

Copies::Copies(device::Driver& driver, device::ModelDeviceFeed& model, std::shared_ptr<Counts> counts, std::uint32_t ring_slots,
               std::uint32_t places)
    : driver_(driver), model_(model), ring_slots_(ring_slots) {
  for (std::uint32_t i = 0; i < places; ++i) places_.push_back(std::make_unique<Announced>(counts, ring_slots + i));
}

void Copies::attach(const DeviceActor& device) {
  for (auto& place : places_) place->device = device;
}

Watch Copies::enqueue(const CopyBlocks& m, device::Stream stream, const Result<void>& bound, std::uint64_t cause, Announcer& announcer) {
  Watch watch;
  watch.ticket = m.copy;
  watch.ring_slot = ring_slots_ + m.handles.place;
  auto phase = DeviceError::Phase::launch;
  Result<void> done = bound;
  if (m.handles.place >= places_.size()) {
    done = Error{ErrorCode::internal, "the copy names place " + std::to_string(m.handles.place) + ", which does not exist"};
  } else if (done) {
    Announced& place = *places_[m.handles.place];
    place.ticket = m.copy;
    place.post.caused_by(cause);
    done = put(m, stream);
    if (done) {
      phase = DeviceError::Phase::forward;
      done = driver_.record_event(m.handles.event, stream);
      // Once more: without it nobody learns when the copy is over.
      if (!done && done.error().code != ErrorCode::device_lost) done = driver_.record_event(m.handles.event, stream);
      if (done) done = announcer.ask(m.handles.event, stream, place);
    }
  }
  if (!done) watch.error = DeviceError{phase, done.error().code, 0, 0, done.error().what};
  return watch;
}

Result<void> Copies::put(const CopyBlocks& m, device::Stream stream) {
  if (m.after != 0) {
    TROUPE_TRY(driver_.stream_wait_event(stream, m.after));
  }
  void* const memory = reinterpret_cast<void*>(static_cast<std::uintptr_t>(m.handles.staging));
  if (m.n_parts != 0) {
    const std::size_t all = model_.ssm_state_bytes(), begin = std::min<std::size_t>(all, m.part * m.handles.block_bytes);
    const std::size_t bytes = std::min<std::size_t>(all - begin, m.n_parts * m.handles.block_bytes);  // the last part is filled up
    return m.out ? model_.copy_state_out(m.state, begin, bytes, memory, stream)
                 : model_.copy_state_in(m.state, begin, bytes, memory, stream);
  }
  return m.out ? model_.copy_blocks_out(m.blocks, memory, stream) : model_.copy_blocks_in(m.blocks, memory, stream);
}

}  // namespace troupe::actors
