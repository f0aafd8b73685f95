// What a server embeds. A Runtime owns the actors of one device and their threads; every function may be called from
// any thread.
//
//   auto loaded  = device::load_model("model.gguf", {});          // device/models/load.h
//   auto runtime = Runtime::start({}, std::move(loaded.value()));
//   runtime.value()->submit(request, [](const RequestEvent& e) { ... });   // called on the delivery thread
//
// A callback gets each token exactly once, in order, and then exactly one Finish (R5). It must not block for long:
// callbacks of one runtime share a delivery thread; what waits for it is bounded by max_live requests times the
// model's context length.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "actors/lora/core.h"
#include "actors/router/core.h"
#include "actors/scheduler/core.h"
#include "actors/trace/options.h"
#include "device/model.h"
#include "messages/protocol.h"

namespace troupe {

struct RuntimeOptions {
  std::uint32_t depth = 2;          // 1 = sync
  std::uint32_t max_batch = 32;     // running requests
  std::uint32_t max_live = 1024;    // accepted and not finished; beyond it submit answers overloaded
  std::uint32_t kv_blocks = 0;      // 0 = max_batch full contexts, or what the model has
  std::uint32_t step_tokens = 512;  // token budget of a step
  std::chrono::nanoseconds step_timeout = std::chrono::seconds(60);
  std::chrono::nanoseconds spin = {};  // how long the control thread spins before it parks; 0 = never spins
  int pin_control_thread = -1;         // a CPU, or -1
  actors::LoraConfig lora{};
  std::string spill_dir{};                             // a folder for what preempted requests had computed; empty: it is computed again
  std::uint64_t spill_limit = std::uint64_t{4} << 30;  // bytes in it at most
  std::uint32_t spill_min_blocks = 4;                  // a request with no more full KV blocks than that is computed again
  std::uint32_t streams = 2;  // of the device, at most; the second, where the model takes one (CUDA), is for those copies, beside the steps
  actors::SchedulerFault fault = actors::SchedulerFault::none;
  actors::RouterFault router_fault = actors::RouterFault::none;
  TraceOptions trace{};  // recording of messages
};

// One thing that happened to a request, valid during the callback only.
struct RequestEvent {
  RequestId request;
  const TokenEvent* token = nullptr;   // a token, or
  const Finish* finish = nullptr;      // the end
  std::string_view text;               // text that became final with it (may be empty)
  const TokenLogprob* best = nullptr;  // token->best_size entries
};
// To get them as messages of an actor, see actors/deliver_to.h.
using RequestCallback = std::function<void(const RequestEvent&)>;

// Why a request was not accepted.
struct Refusal : Error {
  std::chrono::nanoseconds retry_after{};  // overloaded: about when it is worth another try
};
using Submission = BOOST_OUTCOME_V2_NAMESPACE::basic_result<RequestId, Refusal, BOOST_OUTCOME_V2_NAMESPACE::policy::all_narrow>;

struct RuntimeMetrics {
  actors::SchedulerStats scheduler;
  DeviceFacts facts;
  std::uint32_t waiting = 0;
  std::uint32_t running = 0;
  std::uint64_t messages = 0;     // sent between actors
  std::uint64_t trace_bytes = 0;  // recorded, and how many records were dropped for want of room
  std::uint64_t trace_lost = 0;
  TimeNs since_last_settled = 0;  // health: grows while work waits and nothing settles (R10)
};

class Runtime {
 public:
  // Takes the driver and the model over. Errors: what the driver says; bad_request for absurd options.
  static Result<std::unique_ptr<Runtime>> start(const RuntimeOptions& options, std::unique_ptr<device::Driver> driver,
                                                std::unique_ptr<device::ModelDeviceFeed> model);
  ~Runtime();  // stop()

  // Accepted: the request's id. Errors: bad_request, overloaded (try again later), closed. The callback may run before
  // this returns.
  Submission submit(Request request, RequestCallback callback);
  CancelOutcome cancel(std::uint64_t client);

  // A LoRA command (messages/lora.h), in order with submissions: a request that is submitted after it was accepted sees its
  // outcome. Returns when it was accepted, and `done` is called once, on a thread of the runtime: it must be short and must
  // not call the runtime. Errors of the answer: actors/lora/core.h. closed: it was not accepted.
  using LoraCallback = std::function<void(const LoraAnswer&)>;
  Result<void> lora(LoraCommand command, LoraCallback done);
  // The same, and waits for the outcome.
  Result<LoraAck> lora(LoraCommand command);
  const ModelInfo& model() const;
  DeviceFacts facts() const;
  RuntimeMetrics metrics() const;
  // Refuses new requests and waits until the accepted ones are done. False: the time ran out first.
  bool drain(std::chrono::nanoseconds limit);
  // Writes what the flight recorder holds to a file that `troupe trace` reads. Works after stop() too. Errors:
  // bad_request when it is off, io_failed.
  Result<void> dump_trace(const std::string& path) const;
  // Ends what runs (terminal event `error`, code closed), tears the device down and joins every thread. Waits for the
  // callbacks that run, and for the device at most step_timeout and a little. Error: what was not given back;
  // bad_request when called from a callback (nor may a callback destroy the runtime).
  Result<void> stop();

 private:
  struct Impl;
  explicit Runtime(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe
