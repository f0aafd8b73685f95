// A runtime on a model of the Llama kind, on the CUDA driver: over the fake runtime, its kernels run by the SIMT emulation, or
// over NVIDIA's (tests/device/cuda/runtime_under_test.h).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/cuda/driver.h"
#include "device/models/load.h"
#include "tests/actors/rig.h"
#include "tests/device/cuda/runtime_under_test.h"

namespace troupe::test {

using Streams = std::map<std::uint64_t, std::vector<Token>>;  // by client

inline Request greedy(std::uint64_t client, std::vector<Token> prompt, std::uint32_t max_tokens) {
  Request r;
  r.client = client;
  r.prompt = std::move(prompt);
  r.stop.max_tokens = max_tokens;
  r.stop.ignore_eos = true;
  return r;
}

inline device::LoadOptions small_load(std::uint32_t depth) {
  device::LoadOptions load;
  load.kv_blocks = 80;
  load.max_batch = 8;
  load.step_tokens = 64;
  load.depth = depth;
  return load;
}

class CudaRuntime {
 public:
  CudaRuntime(const std::string& path, const device::LoadOptions& load, const RuntimeOptions& options = {}) {
    const auto done = start(path, load, options);
    if (!done) error_ = done.error();
  }
  bool started() const { return runtime != nullptr; }
  const Error& error() const { return error_; }

  // Whether it was taken.
  bool submit(const Request& r) {
    const bool taken = runtime->submit(r, clients.callback(r.client)).has_value();
    taken_ += taken ? 1 : 0;
    return taken;
  }
  std::size_t taken() const { return taken_; }
  // What each request got so far, once every one has ended, none by an error.
  Streams wait() {
    clients.wait_ended(taken_);
    Streams out;
    for (const auto& [client, record] : clients.all()) {
      EXPECT_EQ(record.wrong, "");
      EXPECT_NE(record.finish->reason, FinishReason::error) << client << ": " << record.finish->error.what;
      out[client] = record.tokens;
    }
    return out;
  }
  Streams finish() {
    Streams out = wait();
    const auto stopped = runtime->stop();
    EXPECT_TRUE(stopped) << stopped.error().what;
    return out;
  }

  Clients clients;
  std::unique_ptr<Runtime> runtime;

 private:
  Result<void> start(const std::string& path, const device::LoadOptions& load, RuntimeOptions options) {
    TROUPE_TRY(auto driver, device::make_cuda_driver({}));
    TROUPE_TRY(auto loaded, device::load_model(path, load, std::move(driver)));
    options.depth = load.depth;
    options.max_batch = load.max_batch;
    if (options.trace.flight_dir.empty()) options.trace.flight_dir = testing::TempDir();
    TROUPE_TRY(runtime, Runtime::start(options, std::move(loaded.driver), std::move(loaded.model)));
    return success();
  }
  std::size_t taken_ = 0;
  Error error_;
};

}  // namespace troupe::test
