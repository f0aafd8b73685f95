// What the endpoints do, without HTTP: bodies in, bodies out, over a Runtime.
//
// Invariants
//   - A call is in the books until each of its requests has had its terminal event, also when its client left.
//   - The delivery thread only hands over and counts; whatever waits for the runtime runs on another thread.
//
// Threads: start(), tokenize() and detokenize() take time (parsing, tokenizing, submitting) and run on a worker; the
// rest returns at once, on any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actors/runtime.h"
#include "device/models/load.h"
#include "tools/serve/api_request.h"
#include "tools/serve/call.h"
#include "tools/serve/canceller.h"
#include "tools/serve/flight.h"
#include "tools/serve/http.h"
#include "tools/serve/metrics.h"
#include "tools/serve/options.h"
#include "tools/serve/render.h"
#include "tools/serve/watch.h"

namespace troupe::serve {

class Service {
 public:
  // The runtime outlives the service, and must have been stopped (Runtime::stop) when the service goes: calls that live
  // report to it.
  Service(Runtime& runtime, device::TextSide text, const ServeOptions& options);
  ~Service();

  struct Started {
    std::shared_ptr<Call> call;
    std::unique_ptr<Render> render;
    bool stream = false;
  };
  // Submits what a body asks for. `wake`: see Call.
  ApiResult<Started> start(Api api, std::string_view body, std::function<void()> wake);
  ApiResult<std::string> tokenize(std::string_view body) const;
  ApiResult<std::string> detokenize(std::string_view body) const;

  // Loads or unloads an adapter, on a worker; `done` is called once, on any thread, with the body of the reply.
  using LoraDone = std::function<void(ApiResult<std::string>)>;
  void load_lora(std::string_view body, LoraDone done);
  void unload_lora(std::string_view body, LoraDone done);

  // The client of a call is gone: its requests are cancelled.
  void abandon(const std::shared_ptr<Call>& call);

  std::string models() const;
  ApiResult<std::string> model(std::string_view name) const;
  // `figures` none: the runtime did not answer in time.
  HttpReply health(const std::optional<RuntimeMetrics>& figures) const;
  HttpReply exposition(const std::optional<RuntimeMetrics>& figures);
  HttpReply state(const std::optional<RuntimeMetrics>& figures) const;
  HttpReply replicas(const std::optional<RuntimeMetrics>& figures) const;
  // {"replica": "host:0"}, a name or an index: drains it, or takes it back into service. Does not wait until it has no
  // request left. On a worker.
  ApiResult<std::string> change_replica(std::string_view body, bool drain);

  void begin_draining() { draining_ = true; }
  bool draining() const { return draining_; }

  Metrics& metrics() { return metrics_; }
  RuntimeWatch& watch() { return watch_; }
  FlightDumper& flight() { return flight_; }
  const ServeOptions& options() const { return options_; }

 private:
  class Books;
  ApiResult<std::string> adapter_of(std::string_view model) const;  // "": the base model
  void run_lora(LoraCommand command, std::function<void()> keep, LoraDone done);
  ApiResult<std::vector<std::vector<Token>>> prompts_of(const GenerateBody& body) const;
  ApiResult<std::vector<std::string>> echo_of(const GenerateBody& body, const std::vector<std::vector<Token>>& prompts) const;
  ApiResult<void> check_size(const GenerateBody& body, const std::vector<std::vector<Token>>& prompts) const;
  ApiResult<void> submit(const GenerateBody& body, const std::string& adapter, const std::vector<std::vector<Token>>& prompts,
                         const std::shared_ptr<Call>& call);
  std::uint32_t room_behind(std::size_t prompt) const;

  Runtime& runtime_;
  const device::TextSide text_;
  const ServeOptions options_;
  const std::int64_t created_;
  const std::string id_stem_;  // of this server's life
  Metrics metrics_;
  std::shared_ptr<Books> books_;
  Canceller canceller_;
  RuntimeWatch watch_;
  FlightDumper flight_;
  std::atomic<std::uint64_t> next_client_{1};
  std::atomic<bool> draining_{false};
  mutable std::mutex adapters_mutex_;
  std::map<std::string, std::string, std::less<>> adapters_;  // name -> folder; a copy of the runtime's, for /v1/models
};

}  // namespace troupe::serve
