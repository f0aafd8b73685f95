// What a long prompt does to the requests that decode while it is prefilled: their inter-token gaps, on a scripted device whose steps
// take a programmed time, with prefill on the compute stream and on one of its own. The two streams of that device do not slow each
// other down, so it shows what waits for what, and not what a GPU gives. Blocks until all is done.
#pragma once

#include "messages/error.h"
#include "tools/bench/report.h"

namespace troupe::tools {

Result<void> bench_prefill(Report& report);

}  // namespace troupe::tools
