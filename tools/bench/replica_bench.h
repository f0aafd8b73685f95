// Two host replicas beside one, a thread each: tokens a second of the same requests, whose sizes are skewed (one in five is many times
// as long as the others), and how evenly the work lies on the two while all of it is being done. Blocks until all is done.
#pragma once

#include <cstdint>
#include <string>

#include "messages/error.h"
#include "tools/bench/report.h"

namespace troupe::tools {

Result<void> bench_replicas(Report& report, const std::string& model);

}  // namespace troupe::tools
