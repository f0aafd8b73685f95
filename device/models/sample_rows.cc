#include "device/models/sample_rows.h"

#include <cstddef>

namespace troupe::device {

static_assert(sizeof(kernels::RowLogprobs) == sizeof(ReadLogprobs) &&
              offsetof(kernels::RowLogprobs, n_best) == offsetof(ReadLogprobs, n_best) &&
              offsetof(kernels::RowLogprobs, ids) == offsetof(ReadLogprobs, ids) &&
              offsetof(kernels::RowLogprobs, best) == offsetof(ReadLogprobs, best));
static_assert(sizeof(kernels::IdBias) == sizeof(TokenBias) && offsetof(kernels::IdBias, bias) == offsetof(TokenBias, bias));

kernels::SampleRow to_kernels(const RowSample& s) {
  kernels::SampleRow out;
  out.row = s.row;
  out.output_index = s.output_index;
  out.seed = s.seed;
  out.prompt_length = s.prompt_length;
  out.temperature = s.temperature;
  out.top_k = s.top_k;
  out.top_p = s.top_p;
  out.min_p = s.min_p;
  out.repetition_penalty = s.repetition_penalty;
  out.presence_penalty = s.presence_penalty;
  out.frequency_penalty = s.frequency_penalty;
  out.bias_begin = s.bias_begin;
  out.n_biases = s.n_biases;
  out.bar_begin = s.bar_begin;
  out.n_bars = s.n_bars;
  out.history_begin = s.history_begin;
  out.n_history = s.n_history;
  out.n_best = s.n_best;
  out.logprobs_row = s.logprobs_row;
  return out;
}

}  // namespace troupe::device
