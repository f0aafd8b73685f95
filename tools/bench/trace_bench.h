// What recording messages costs: the same run without a recorder, with the flight recorder, and with a file; in turns, so
// that a machine that changes its speed does it to all three.
#pragma once

#include <string>

#include "messages/error.h"
#include "tools/bench/report.h"

namespace troupe::tools {

// `model`: a file, or empty for the scripted device alone. `cpu`: the control thread's.
Result<void> bench_trace(Report& report, const std::string& model, int cpu);

}  // namespace troupe::tools
