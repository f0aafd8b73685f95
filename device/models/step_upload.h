// The parameters of a step on their way to a device that does not read the host's memory: one area of page-locked memory, which
// goes up by one copy, and the device's copy of it, where everything lies at the same offset. Graphs know where the cell arrays
// and rows are; behind them each step's lists follow each other, so that the copy ends behind what there is.
//
// Values only: any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/model.h"
#include "device/models/llama_step.h"
#include "kernels/kernels.h"
#include "messages/error.h"

namespace troupe::device {

struct UploadLayout {
  std::size_t cell_arrays = 0, rows = 0, ids = 0, bytes = 0;
  std::size_t most_ids = 0, most_changes = 0;

  UploadLayout() = default;
  UploadLayout(const LlamaOptions& options, const kernels::BlockTables& tables);

  struct Lists {
    std::size_t changes, samples, biases, end;
    Lists(std::size_t ids, std::size_t n_ids, std::size_t n_changes, std::size_t n_samples, std::size_t n_biases);
  };
  Lists lists(const StepView& step) const { return {ids, step.tokens.size(), step.deltas.size(), step.samples.size(), step.biases.size()}; }
};

// bad_plan: more ids than a step has, or more table changes than max_rows tables hold.
Result<void> check_upload(const UploadLayout& layout, const StepView& step);

// Writes a step that check_step and check_upload took to `to` (layout.bytes), up to lists(step).end. runs: room for one a row.
StepShape pack_step(const UploadLayout& layout, const StepView& step, void* to, kernels::LoraRun* runs);

// Behind the step's rows in `to`: rows [from, to_row) of no sequence. They have no block table and no state, so they read and write
// no KV and no state.
void fill_rows(const UploadLayout& layout, void* to, std::uint32_t from, std::uint32_t to_row);

}  // namespace troupe::device
