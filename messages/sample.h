// What the scheduler asks of the sampler, and its answer.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "messages/feed.h"
#include "messages/ids.h"
#include "messages/request.h"
#include "messages/result.h"
#include "messages/shared.h"

namespace troupe {

// One row to choose a token for. The sampler keeps penalty counts per request; `tokens` in [new_begin, new_begin +
// new_size) of the batch are the request's output since it was last asked. `fresh`: forget what is kept, and count
// from the prompt (first time, or after a preemption); the new tokens are then the whole output so far.
struct SampleRow {
  RequestId request;
  Shared<Request> params;
  std::uint64_t seed = 0;
  std::uint32_t logits_row = 0;
  std::uint32_t output_index = 0;  // Philox counter = {output index, choice}
  std::uint32_t new_begin = 0;
  std::uint32_t new_size = 0;
  std::uint32_t bar_begin = 0;  // ids that may not be chosen (min_tokens, think), in `tokens`
  std::uint32_t bar_size = 0;
  bool fresh = false;
};

struct SampleBatch {
  Ticket ticket;
  LogitsView logits;
  std::vector<SampleRow> rows;
  std::vector<Token> tokens;
  std::vector<RequestId> closed;  // requests that ended: their counts may go
  void clear() {
    ticket = {};
    logits = {};
    rows.clear();
    tokens.clear();
    closed.clear();
  }
};

struct SampledRow {
  RequestId request;
  Token id = 0;
  CellStatus status = CellStatus::ok;
  float logprob = std::numeric_limits<float>::quiet_NaN();  // of the raw distribution, if asked for
  std::uint32_t best_begin = 0;
  std::uint32_t best_size = 0;
};

struct SampledBatch {
  Ticket ticket;
  std::vector<SampledRow> rows;  // one per SampleBatch row, same order
  std::vector<TokenLogprob> best;
  void clear() {
    ticket = {};
    rows.clear();
    best.clear();
  }
};

template <class I>
auto inspect(I& f, SampleRow& x) {
  return f(x.request, x.params, x.seed, x.logits_row, x.output_index, x.new_begin, x.new_size, x.bar_begin, x.bar_size, x.fresh);
}
template <class I>
auto inspect(I& f, SampleBatch& x) {
  return f(x.ticket, x.logits, x.rows, x.tokens, x.closed);
}
template <class I>
auto inspect(I& f, SampledRow& x) {
  return f(x.request, x.id, x.status, x.logprob, x.best_begin, x.best_size);
}
template <class I>
auto inspect(I& f, SampledBatch& x) {
  return f(x.ticket, x.rows, x.best);
}

std::string label(const SampleBatch& x);   // "Sample{t1.42, n=2}"
std::string label(const SampledBatch& x);  // "Sampled{t1.42, n=2}"

}  // namespace troupe
