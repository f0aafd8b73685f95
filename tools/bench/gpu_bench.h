// What a GPU does with a model, and what the host adds: for the report of `run-gpu` (tools/gpu_bundle). One thread.
//
// A step's time and the device's busy share are by the device's own clock (timed_driver.h). Busy share: of the time from one step's
// begin to another's end, that in which a step had begun and not ended. The bytes that a decode step must move: every weight once, and
// the keys and values of every position before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "messages/error.h"
#include "tools/bench/report.h"

namespace troupe::tools {

struct GpuBenchOptions {
  std::size_t copy_bytes = std::size_t{1} << 30;  // of one copy on the device, and between it and the host
  std::uint32_t rounds = 2000;                    // of a latency
  std::vector<std::uint32_t> batches{1, 4, 16, 64, 256};
  std::uint32_t prompt = 32, tokens = 96;  // of each request
  // What a prompt does to who decodes: that many requests, and their tokens at most; prompts, and tokens of each.
  std::uint32_t decoding = 16, decoded = 1500, warm = 60, prompts = 5, long_prompt = 1500;
};

// unsupported: there is no GPU, and the sentence says why.
Result<void> bench_gpu(Report& report, const std::string& model, const GpuBenchOptions& options = {});

}  // namespace troupe::tools
