// Measures the runtime over the scripted device: what happens between two steps, and how long the device waits.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "actors/trace/options.h"
#include "messages/error.h"

namespace troupe::tools {

struct ScriptedRun {
  std::uint32_t rows = 64;                   // requests that decode at a time
  std::uint32_t depth = 2;                   // most steps in flight
  std::chrono::nanoseconds step{1'000'000};  // how long the device takes for a step
  std::uint32_t steps = 1000;                // decode steps
  std::chrono::nanoseconds spin{3'000'000};  // of the control thread before it parks; 0 = it parks at once
  int cpu = -1;                              // for the control thread; -1 = any
  TraceOptions trace{};                      // of the messages
};

// Of the steady part of a run: its first and last tenths are left out.
struct ScriptedFigures {
  std::vector<double> loop_us;   // event of step t done -> step t + depth enqueued, sorted
  double idle = 0;               // share of the time that the device had no step to run
  double messages_per_step = 0;  // mailboxes only
  double allocs_per_step = 0;    // not by CAF
  double caf_allocs_per_step = 0;
  double trace_bytes_per_step = 0;
  std::uint64_t trace_lost = 0;  // records that the recorder had no room for
  double at(double quantile) const { return loop_us[static_cast<std::size_t>(quantile * static_cast<double>(loop_us.size() - 1))]; }
};

// Through the actors.
Result<ScriptedFigures> run_mailboxes(const ScriptedRun& run);
// The same cores by direct calls in this thread, which is bound to run.cpu meanwhile.
Result<ScriptedFigures> run_direct(const ScriptedRun& run);

}  // namespace troupe::tools
