#include "kernels/host/sample.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "kernels/philox.h"
#include "kernels/sampling_math.h"

namespace troupe::kernels {

namespace {

constexpr std::uint32_t kInPrompt = 1u << 31;  // in a count

void penalize(const SampleArgs& a, const SampleRow& s, const StepRow& row, std::vector<float>& work, std::vector<std::uint32_t>& counts) {
  counts.resize(a.vocab);
  const std::uint32_t length = std::min(row.position + row.n_tokens, a.history_stride);
  const std::span ids(a.history + std::size_t{row.slot} * a.history_stride, length);
  for (std::uint32_t p = 0; p < length; ++p) {
    if (ids[p] >= a.vocab) continue;
    if (p < s.prompt_length) {
      counts[ids[p]] |= kInPrompt;
    } else {
      ++counts[ids[p]];
    }
  }
  for (const std::uint32_t id : ids) {
    const std::uint32_t count = id < a.vocab ? std::exchange(counts[id], 0) : 0;
    if (count == 0) continue;  // another position had the same id
    work[id] = penalized(work[id], count & ~kInPrompt, s.repetition_penalty, s.presence_penalty, s.frequency_penalty);
  }
}

}  // namespace

void Sample::run(const SampleArgs& args) {
  pool_.run(args.n, [&](std::size_t i, unsigned thread) { row(args, static_cast<std::uint32_t>(i), places_[thread]); });
}

void Sample::row(const SampleArgs& a, std::uint32_t i, Place& place) {
  const SampleRow& s = a.samples[i];
  const StepRow& row = a.rows[s.row];
  for (std::uint32_t p = 0; p < std::min(s.n_history, a.history_stride); ++p) {
    a.history[std::size_t{row.slot} * a.history_stride + p] = a.ids[s.history_begin + p];
  }
  if (a.cells[s.row].status != Status::ok) return;
  const std::span raw(a.logits + std::size_t{row.output} * a.vocab, a.vocab);
  place.work.assign(raw.begin(), raw.end());
  if (s.penalizes()) penalize(a, s, row, place.work, place.counts);
  for (const IdBias& b : std::span(a.biases + s.bias_begin, s.n_biases)) {
    if (b.id < a.vocab) place.work[b.id] += b.bias;
  }
  const auto bar = [&](std::uint32_t id) {
    if (id < a.vocab) place.work[id] = -std::numeric_limits<float>::infinity();
  };
  for (const std::uint32_t id : std::span(a.ids + s.bar_begin, s.n_bars)) bar(id);
  bar(row.mask_a);
  bar(row.mask_b);

  std::optional<std::uint32_t> chosen;
  if (s.temperature > 0) {
    const SamplingShape shape{.temperature = s.temperature, .top_k = s.top_k, .top_p = s.top_p, .min_p = s.min_p};
    chosen = sample_token(place.work, shape, philox_draw(s.seed, s.output_index, 0), place.scratch);
  } else {
    chosen = best_token(place.work);
  }
  a.cells[s.row] = {chosen.value_or(0), chosen ? Status::ok : Status::no_token, a.tag};
  a.readback[s.row].id = a.cells[s.row].id;
  a.readback[s.row].status = a.cells[s.row].status;
  if (!chosen || s.logprobs_row == kNone) return;
  const LogSoftmax log_softmax(raw);
  RowLogprobs& out = a.logprobs[s.logprobs_row];
  out.chosen = log_softmax.at(raw[*chosen]);
  out.n_best = 0;
  for (const std::uint64_t key : best_tokens(raw, std::min(s.n_best, RowLogprobs::kMaxBest), place.scratch)) {
    out.ids[out.n_best] = candidate_id(key);
    out.best[out.n_best++] = log_softmax.at(raw[candidate_id(key)]);
  }
}

}  // namespace troupe::kernels
