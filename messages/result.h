// What comes back from a step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "messages/error.h"
#include "messages/feed.h"
#include "messages/ids.h"

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
struct StepResult {
  Ticket ticket;
  DeviceError error;  // code none = success
  std::vector<Readback> rows;
  LogitsView logits;
  bool ok() const { return error.code == ErrorCode::none; }
  void clear() {
    ticket = {};
    error.code = ErrorCode::none;
    error.what.clear();
    rows.clear();
    logits = {};
  }
};

template <class I> auto inspect(I& f, LogitsView& x) { return f(x.n_rows, x.vocab); }
template <class I> auto inspect(I& f, StepResult& x) { return f(x.ticket, x.error, x.rows, x.logits); }

std::string label(const StepResult& x);  // "Result{t1.42, n=4}" | "Result{t1.42, readback/device_failed}"

}  // namespace troupe
