#include "tools/bench/model_bench.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "actors/runtime.h"
#include "device/models/load.h"

namespace troupe::tools {
namespace {

using Clock = std::chrono::steady_clock;

struct Timeline {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint32_t started = 0, ended = 0, failed = 0;
  std::uint64_t tokens = 0;             // while every request decodes
  Clock::time_point all_started, first_end;
};

Result<std::unique_ptr<Runtime>> start(const std::string& path, std::uint32_t batch, std::uint32_t depth) {
  device::LoadOptions options;
  options.max_batch = batch;
  options.depth = depth;
  TROUPE_TRY(auto loaded, device::load_model(path, options));
  RuntimeOptions settings;
  settings.depth = depth;
  settings.max_batch = batch;
  return Runtime::start(settings, std::move(loaded.driver), std::move(loaded.model));
}

Request make_request(std::uint64_t client, std::uint32_t prompt, std::uint32_t tokens, std::uint32_t vocab) {
  Request request;
  request.client = client;
  for (std::uint32_t i = 0; i < prompt; ++i) request.prompt.push_back(static_cast<Token>((client * 7919 + i * std::uint64_t{104729}) % vocab));
  request.stop.max_tokens = tokens;
  request.stop.ignore_eos = true;
  return request;
}

// Runs the requests to their ends.
Result<void> run(Runtime& runtime, Timeline& line, std::uint32_t batch, std::uint32_t prompt, std::uint32_t tokens) {
  const auto on_event = [&](const RequestEvent& event) {
    const std::lock_guard lock(line.mutex);
    if (event.token != nullptr) {
      if (line.started == batch && line.ended == 0) ++line.tokens;
      if (event.token->index == 0 && ++line.started == batch) line.all_started = Clock::now();
    }
    if (event.finish != nullptr) {
      if (line.ended++ == 0) line.first_end = Clock::now();
      if (event.finish->reason != FinishReason::length) ++line.failed;
      line.changed.notify_one();
    }
  };
  for (std::uint32_t i = 1; i <= batch; ++i) {
    TROUPE_TRY(runtime.submit(make_request(i, prompt, tokens, runtime.model().vocab_size), on_event));
  }
  std::unique_lock lock(line.mutex);
  line.changed.wait(lock, [&] { return line.ended == batch; });
  if (line.failed != 0) return Error{ErrorCode::internal, "a request of the benchmark did not run to its length"};
  return success();
}

}  // namespace

Result<ModelFigures> run_decode(const std::string& path, std::uint32_t batch, std::uint32_t tokens, std::uint32_t depth) {
  TROUPE_TRY(auto runtime, start(path, batch, depth));
  Timeline line;
  TROUPE_TRY(run(*runtime, line, batch, 16, tokens));
  TROUPE_TRY(runtime->stop());
  ModelFigures out;
  out.tokens_per_s = static_cast<double>(line.tokens) / std::chrono::duration<double>(line.first_end - line.all_started).count();
  out.step_ms = 1000.0 * batch / out.tokens_per_s;
  return out;
}

Result<double> run_prefill(const std::string& path, std::uint32_t prompt) {
  TROUPE_TRY(auto runtime, start(path, 1, 2));
  Timeline line;
  const Clock::time_point begin = Clock::now();
  TROUPE_TRY(run(*runtime, line, 1, prompt, 1));
  const double seconds = std::chrono::duration<double>(line.all_started - begin).count();
  TROUPE_TRY(runtime->stop());
  return prompt / seconds;
}

}  // namespace troupe::tools
