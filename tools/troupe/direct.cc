#include "tools/troupe/direct.h"

#include <fmt/format.h>

namespace troupe::tools {

Result<std::unique_ptr<DirectSequence>> DirectSequence::create(device::Driver& driver, device::ModelDeviceFeed& model) {
  std::unique_ptr<DirectSequence> out(new DirectSequence(driver, model));
  TROUPE_TRY(out->allocate());
  return out;
}

Result<void> DirectSequence::allocate() {
  const ModelInfo& info = model_.info();
  TROUPE_TRY(driver_.bind_thread());
  TROUPE_TRY(stream_, driver_.create_stream());
  TROUPE_TRY(event_, driver_.create_event());
  TROUPE_TRY(void* readback, driver_.alloc_host_pinned(sizeof(Readback) * info.max_rows));
  readback_ = static_cast<Readback*>(readback);
  TROUPE_TRY(void* logits, driver_.alloc_host_pinned(sizeof(float) * info.vocab_size * info.max_logits_rows));
  logits_ = static_cast<float*>(logits);
  if (model_.upload_bytes() != 0) {
    TROUPE_TRY(upload_, driver_.alloc_host_pinned(model_.upload_bytes()));
  }
  TROUPE_TRY(cells_, driver_.alloc_device(model_.cells_bytes()));
  return success();
}

// What cannot be given back here shows up in the driver's usage().
DirectSequence::~DirectSequence() {
  const ModelInfo& info = model_.info();
  if (cells_ != 0) (void)driver_.free_device(cells_, model_.cells_bytes());
  if (upload_ != nullptr) (void)driver_.free_host_pinned(upload_, model_.upload_bytes());
  if (logits_ != nullptr) (void)driver_.free_host_pinned(logits_, sizeof(float) * info.vocab_size * info.max_logits_rows);
  if (readback_ != nullptr) (void)driver_.free_host_pinned(readback_, sizeof(Readback) * info.max_rows);
  if (event_ != 0) (void)driver_.destroy_event(event_);
  if (stream_ != 0) (void)driver_.destroy_stream(stream_);
}

Result<std::span<const float>> DirectSequence::step(Token id) {
  const ModelInfo& info = model_.info();
  if (id >= info.vocab_size)
    return Error{ErrorCode::bad_request, fmt::format("id {} is outside the vocabulary of {}", id, info.vocab_size)};
  if (length_ >= info.context_length)
    return Error{ErrorCode::bad_request, fmt::format("longer than the context of {} positions", info.context_length)};
  deltas_.clear();
  if (length_ % info.block_size == 0) {
    const std::uint32_t block = length_ / info.block_size;
    if (block >= info.kv_blocks)
      return Error{ErrorCode::bad_request, fmt::format("longer than the KV pool of {} blocks; raise --kv-blocks", info.kv_blocks)};
    deltas_.push_back({.slot = 0, .index = block, .block = block});
  }
  const Ticket ticket{.incarnation = 1, .step = ++steps_};
  DeviceRow row;
  row.position = length_;
  row.logits_row = 0;
  device::StepView view;
  view.ticket = ticket;
  view.tag = ticket.tag();
  view.rows = {&row, 1};
  view.tokens = {&id, 1};
  view.deltas = deltas_;
  view.cells = cells_;
  view.cell_arrays = {&cells_, 1};
  view.upload = upload_;
  TROUPE_TRY(auto logits, model_.decode_batch_fed(view, stream_));
  TROUPE_TRY(model_.argmax_batch_to_feed(logits, view, {.rows = readback_, .logits = logits_}, event_, stream_));
  TROUPE_TRY(driver_.event_synchronize(event_));
  TROUPE_TRY(driver_.event_query(event_));
  model_.fed_step_settled(ticket);
  ++length_;
  return std::span<const float>(logits_, info.vocab_size);
}

}  // namespace troupe::tools
