// A scripted model on a host driver with a ring of slots, driven without any engine.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "device/host/driver.h"
#include "device/models/scripted.h"

namespace troupe::device {

struct RigSlot {
  Event event = 0;
  Readback* rows = nullptr;
  float* logits = nullptr;
  DevicePtr cells = 0;
};

// One step being put together. Kept alive by the caller until it has settled.
struct RigStep {
  Ticket ticket;
  std::vector<DeviceRow> rows;
  std::vector<Token> tokens;
  std::vector<TableDelta> deltas;

  DeviceRow& host(std::uint32_t slot, std::uint32_t position, std::vector<Token> ids) {
    DeviceRow row;
    row.slot = slot;
    row.position = position;
    row.n_tokens = static_cast<std::uint32_t>(ids.size());
    row.index = static_cast<std::uint32_t>(tokens.size());
    tokens.insert(tokens.end(), ids.begin(), ids.end());
    return rows.emplace_back(row);
  }
  DeviceRow& fed(std::uint32_t slot, std::uint32_t position, std::uint32_t cells, Ticket from, std::uint32_t from_row) {
    DeviceRow row;
    row.slot = slot;
    row.position = position;
    row.source = FeedSource::Kind::feed;
    row.index = from_row;
    row.feed_cells = cells;
    row.feed_tag = from.tag();
    return rows.emplace_back(row);
  }
};

class Rig {
 public:
  explicit Rig(ScriptedOptions options, HostDriverOptions driver_options = {}) : driver(make_host_driver(driver_options)) {
    stream = driver->create_stream().value();
    model = std::move(ScriptedModel::load(*driver, std::move(options)).value());
    const ModelInfo& info = model->info();
    for (std::uint32_t i = 0; i <= info.max_depth; ++i) {
      RigSlot slot;
      slot.event = driver->create_event().value();
      slot.rows = static_cast<Readback*>(driver->alloc_host_pinned(rows_bytes()).value());
      slot.logits = static_cast<float*>(driver->alloc_host_pinned(logits_bytes()).value());
      slot.cells = driver->alloc_device(model->cells_bytes()).value();
      slots.push_back(slot);
      cell_arrays.push_back(slot.cells);
    }
  }
  // Gives everything back; what is left shows in driver->usage().
  void close() {
    const std::size_t cells = model->cells_bytes();
    const std::size_t rows = rows_bytes(), logits = logits_bytes();
    model.reset();
    for (RigSlot& slot : slots) {
      (void)driver->event_synchronize(slot.event);
      (void)driver->destroy_event(slot.event);
      (void)driver->free_host_pinned(slot.rows, rows);
      (void)driver->free_host_pinned(slot.logits, logits);
      (void)driver->free_device(slot.cells, cells);
    }
    (void)driver->destroy_stream(stream);
  }

  StepView view(const RigStep& step, std::uint32_t slot) const {
    return {.ticket = step.ticket,
            .tag = step.ticket.tag(),
            .rows = step.rows,
            .tokens = step.tokens,
            .deltas = step.deltas,
            .cells = slots[slot].cells,
            .cell_arrays = cell_arrays};
  }
  Result<void> enqueue(const RigStep& step, std::uint32_t slot) {
    const StepView v = view(step, slot);
    TROUPE_TRY(const DevicePtr logits, model->decode_batch_fed(v, stream));
    return model->argmax_batch_to_feed(logits, v, {slots[slot].rows, slots[slot].logits}, slots[slot].event, stream);
  }
  Result<void> wait(std::uint32_t slot) { return driver->event_synchronize(slots[slot].event); }
  Result<void> run(const RigStep& step, std::uint32_t slot = 0) {
    TROUPE_TRY(enqueue(step, slot));
    return wait(slot);
  }

  std::unique_ptr<Driver> driver;
  Stream stream = 0;
  std::unique_ptr<ScriptedModel> model;
  std::vector<RigSlot> slots;
  std::vector<DevicePtr> cell_arrays;

 private:
  std::size_t rows_bytes() const { return model->info().max_rows * sizeof(Readback); }
  std::size_t logits_bytes() const { return std::size_t{model->info().max_logits_rows} * model->info().vocab_size * sizeof(float); }
};

}  // namespace troupe::device
