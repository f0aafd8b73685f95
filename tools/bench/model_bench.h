// Measures the runtime over a real model: one runtime, asked for as many measurements as one likes. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "actors/runtime.h"
#include "device/models/load.h"
#include "messages/error.h"

namespace troupe::tools {

struct DecodeFigures {
  double tokens_per_s = 0;  // from when the last request has its first token to when the first one ends
  double step_ms = 0;
};

struct ModelSize {
  std::uint64_t tensor_bytes = 0;
  std::uint64_t parameters = 0;
  double load_s = 0;    // of the file, tokenizer included
  double kv_bytes = 0;  // of a position
};

class ModelBench {
 public:
  // `threads`: that compute, 0 = one per CPU.
  static Result<std::unique_ptr<ModelBench>> open(const std::string& path, std::uint32_t max_batch, std::uint32_t depth,
                                                  std::uint32_t threads, const TraceOptions& trace = {});

  // On a driver that the caller made, and has bound.
  static Result<std::unique_ptr<ModelBench>> open(const std::string& path, const device::LoadOptions& load, const RuntimeOptions& settings,
                                                  std::unique_ptr<device::Driver> driver);

  // `batch` requests with prompts of `prompt` tokens decode `tokens` tokens each: greedily, but for a share of them that
  // sample (temperature, top-p and a penalty). No prompt is ever repeated, so none is found in the prefix cache.
  Result<DecodeFigures> decode(std::uint32_t batch, std::uint32_t prompt, std::uint32_t tokens, double sampled = 0);
  // Prompt tokens per second of `n` prompts, one after the other, each up to its first token.
  Result<double> prefill(std::uint32_t prompt, std::uint32_t n);

  const ModelSize& size() const { return size_; }
  Result<void> stop() { return runtime_->stop(); }

 private:
  std::unique_ptr<Runtime> runtime_;
  ModelSize size_;
  std::uint64_t next_client_ = 1;
};

}  // namespace troupe::tools
