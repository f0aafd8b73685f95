#include "tools/bench/model_bench.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

namespace troupe::tools {
namespace {

using Clock = std::chrono::steady_clock;

struct Timeline {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint32_t started = 0, ended = 0, failed = 0;
  std::uint64_t tokens = 0;  // while every request decodes
  Clock::time_point all_started, first_end;
};

Request make_request(std::uint64_t client, std::uint32_t prompt, std::uint32_t tokens, std::uint32_t vocab) {
  Request request;
  request.client = client;
  for (std::uint32_t i = 0; i < prompt; ++i)
    request.prompt.push_back(static_cast<Token>((client * 7919 + i * std::uint64_t{104729}) % vocab));
  request.stop.max_tokens = tokens;
  request.stop.ignore_eos = true;
  return request;
}

// Runs `batch` requests, from client number `first` on, to their ends.
Result<void> run(Runtime& runtime, Timeline& line, std::uint64_t first, std::uint32_t batch, std::uint32_t prompt, std::uint32_t tokens,
                 double sampled = 0) {
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
  for (std::uint32_t i = 0; i < batch; ++i) {
    Request request = make_request(first + i, prompt, tokens, runtime.model().vocab_size);
    if (static_cast<int>((i + 1) * sampled) > static_cast<int>(i * sampled)) {
      request.sampling = {.temperature = 0.8f, .top_p = 0.95f, .repetition_penalty = 1.1f, .seed = request.client};
    }
    TROUPE_TRY(runtime.submit(std::move(request), on_event));
  }
  std::unique_lock lock(line.mutex);
  line.changed.wait(lock, [&] { return line.ended == batch; });
  if (line.failed != 0) return Error{ErrorCode::internal, "a request of the benchmark did not run to its length"};
  return success();
}

double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

}  // namespace

Result<std::unique_ptr<ModelBench>> ModelBench::open(const std::string& path, std::uint32_t max_batch, std::uint32_t depth,
                                                     std::uint32_t threads, const TraceOptions& trace) {
  device::LoadOptions options;
  options.max_batch = max_batch;
  options.depth = depth;
  options.threads = threads;
  RuntimeOptions settings;
  settings.trace = trace;
  return open(path, options, settings, nullptr);
}

Result<std::unique_ptr<ModelBench>> ModelBench::open(const std::string& path, const device::LoadOptions& load,
                                                     const RuntimeOptions& settings, std::unique_ptr<device::Driver> driver) {
  auto bench = std::make_unique<ModelBench>();
  const Clock::time_point begin = Clock::now();
  TROUPE_TRY(auto loaded, driver == nullptr ? device::load_model(path, load) : device::load_model(path, load, std::move(driver)));
  bench->size_ = {loaded.file.tensor_bytes, loaded.file.parameters, seconds(Clock::now() - begin),
                  static_cast<double>(loaded.model->kv_block_bytes()) / load.block_size};
  RuntimeOptions options = settings;
  options.depth = load.depth;
  options.max_batch = load.max_batch;
  options.step_tokens = load.step_tokens;
  TROUPE_TRY(bench->runtime_, Runtime::start(options, std::move(loaded.driver), std::move(loaded.model)));
  return bench;
}

Result<DecodeFigures> ModelBench::decode(std::uint32_t batch, std::uint32_t prompt, std::uint32_t tokens, double sampled) {
  Timeline line;
  TROUPE_TRY(run(*runtime_, line, std::exchange(next_client_, next_client_ + batch), batch, prompt, tokens, sampled));
  DecodeFigures out;
  out.tokens_per_s = static_cast<double>(line.tokens) / seconds(line.first_end - line.all_started);
  out.step_ms = 1000.0 * batch / out.tokens_per_s;
  return out;
}

Result<double> ModelBench::prefill(std::uint32_t prompt, std::uint32_t n) {
  Clock::duration total{};
  for (std::uint32_t i = 0; i < n; ++i) {
    Timeline line;
    const Clock::time_point begin = Clock::now();
    TROUPE_TRY(run(*runtime_, line, next_client_++, 1, prompt, 1));
    total += line.all_started - begin;
  }
  return double{1} * n * prompt / seconds(total);
}

}  // namespace troupe::tools
