// Measures the runtime over a real model.
#pragma once

#include <cstdint>
#include <string>

#include "messages/error.h"

namespace troupe::tools {

struct ModelFigures {
  double tokens_per_s = 0;  // while all the requests decode
  double step_ms = 0;
};

// `batch` requests decode `tokens` tokens each, greedily, at `depth`.
Result<ModelFigures> run_decode(const std::string& path, std::uint32_t batch, std::uint32_t tokens, std::uint32_t depth);

// Prompt tokens per second of one prompt of that many tokens, up to its first token.
Result<double> run_prefill(const std::string& path, std::uint32_t prompt);

}  // namespace troupe::tools
