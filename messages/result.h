// What comes back from a step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "messages/error.h"
#include "messages/feed.h"
#include "messages/ids.h"
#include "messages/request.h"

namespace troupe {

// Logits in the page-locked ring: float[n_rows][vocab], row k for the k-th row of the plan with readback logits.
// Valid until ReadLogits{ticket} is applied (R4). A recording keeps the shape, never the values.
struct LogitsView {
  const float* data = nullptr;
  std::uint32_t n_rows = 0;
  std::uint32_t vocab = 0;
};

// rows[i] answers StepPlan::rows[i] (an entry of a row with readback none has only `input`). With an error, rows is
// empty: the whole step failed.
struct RowLogprobs {
  float chosen = 0;
  std::uint32_t best_begin = 0;  // in StepResult::best
  std::uint32_t n_best = 0;
};

struct StepResult {
  Ticket ticket;
  DeviceError error;  // code none = success
  std::vector<Readback> rows;
  LogitsView logits;
  std::vector<RowLogprobs> logprobs;  // of the sampled rows that want them, in their order
  std::vector<TokenLogprob> best;
  bool ok() const { return error.code == ErrorCode::none; }
  void clear() {
    ticket = {};
    error.code = ErrorCode::none;
    error.what.clear();
    rows.clear();
    logits = {};
    logprobs.clear();
    best.clear();
  }
};

template <class I>
auto inspect(I& f, LogitsView& x) {
  return f(x.n_rows, x.vocab);
}
template <class I>
auto inspect(I& f, RowLogprobs& x) {
  return f(x.chosen, x.best_begin, x.n_best);
}
template <class I>
auto inspect(I& f, StepResult& x) {
  return f(x.ticket, x.error, x.rows, x.logits, x.logprobs, x.best);
}

std::string label(const StepResult& x);  // "Result{t1.42, n=4}" | "Result{t1.42, readback/device_failed}"

}  // namespace troupe
