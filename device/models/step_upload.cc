#include "device/models/step_upload.h"

#include <fmt/format.h>

#include <algorithm>

#include "device/models/sample_rows.h"

namespace troupe::device {

namespace {

std::size_t take(std::size_t at, std::size_t n) { return (at + n + 63) / 64 * 64; }

template <class T>
T* part(void* area, std::size_t offset) {
  return reinterpret_cast<T*>(static_cast<std::byte*>(area) + offset);
}

}  // namespace

UploadLayout::UploadLayout(const LlamaOptions& o, const kernels::BlockTables& tables)
    : most_ids(std::size_t{o.max_step_tokens} + max_sample_words(o)), most_changes(std::size_t{o.max_rows} * tables.blocks_per_slot) {
  rows = take(cell_arrays, max_cell_arrays(o) * sizeof(DevicePtr));
  ids = take(rows, o.max_rows * sizeof(kernels::StepRow));
  bytes = Lists(ids, most_ids, most_changes, o.max_rows, max_sample_words(o) / 2).end;
}

UploadLayout::Lists::Lists(std::size_t ids, std::size_t n_ids, std::size_t n_changes, std::size_t n_samples, std::size_t n_biases) {
  changes = take(ids, n_ids * sizeof(std::uint32_t));
  samples = take(changes, n_changes * sizeof(kernels::TableChange));
  biases = take(samples, n_samples * sizeof(kernels::SampleRow));
  end = take(biases, n_biases * sizeof(kernels::IdBias));
}

Result<void> check_upload(const UploadLayout& layout, const StepView& step) {
  if (step.deltas.size() <= layout.most_changes && step.tokens.size() <= layout.most_ids) return success();
  return Error{ErrorCode::bad_plan, fmt::format("{} table changes and {} ids in a step; the model takes {} and {}", step.deltas.size(),
                                                step.tokens.size(), layout.most_changes, layout.most_ids)};
}

StepShape pack_step(const UploadLayout& layout, const StepView& step, void* to, kernels::LoraRun* runs) {
  const UploadLayout::Lists lists = layout.lists(step);
  std::copy(step.cell_arrays.begin(), step.cell_arrays.end(), part<DevicePtr>(to, layout.cell_arrays));
  std::copy(step.tokens.begin(), step.tokens.end(), part<std::uint32_t>(to, layout.ids));
  auto* const changes = part<kernels::TableChange>(to, lists.changes);
  for (std::size_t i = 0; i < step.deltas.size(); ++i) changes[i] = {step.deltas[i].slot, step.deltas[i].index, step.deltas[i].block};
  auto* const samples = part<kernels::SampleRow>(to, lists.samples);
  for (std::size_t i = 0; i < step.samples.size(); ++i) samples[i] = to_kernels(step.samples[i]);
  auto* const biases = part<kernels::IdBias>(to, lists.biases);
  for (std::size_t i = 0; i < step.biases.size(); ++i) biases[i] = {step.biases[i].id, step.biases[i].bias};
  return to_kernels(step, part<kernels::StepRow>(to, layout.rows), runs);
}

void fill_rows(const UploadLayout& layout, void* to, std::uint32_t from, std::uint32_t to_row) {
  for (std::uint32_t r = from; r < to_row; ++r) part<kernels::StepRow>(to, layout.rows)[r] = {.slot = kernels::kNone};
}

}  // namespace troupe::device
