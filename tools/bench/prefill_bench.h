// What a long prompt does to the requests that decode while it is prefilled: their inter-token gaps, with prefill on the compute stream
// and on one of its own, in one run. Blocks until all is done.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "actors/runtime.h"
#include "messages/error.h"
#include "tools/bench/report.h"

namespace troupe::tools {

struct PrefillBench {
  std::uint32_t decoding = 8;  // requests that do, each to `tokens`
  std::uint32_t tokens = 3000;
  std::uint32_t warm = 60;     // tokens before the first prompt, and so many between two: half of it
  std::uint32_t prompt = 400;  // tokens of each
  std::uint32_t prompts = 5;   // one after the other
  // Of RuntimeOptions::streams 2 and 3.
  std::function<Result<std::unique_ptr<Runtime>>(std::uint32_t streams)> start;
};

Result<void> bench_prefill(Report& report, const PrefillBench& bench);

}  // namespace troupe::tools
