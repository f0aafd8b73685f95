// What a server embeds. A Runtime owns the actors of one device, or of several, and their threads; every function may be
// called from any thread.
//
//   auto loaded  = device::load_model("model.gguf", {});          // device/models/load.h
//   auto runtime = Runtime::start({}, std::move(loaded.value().driver), std::move(loaded.value().model));
//   runtime.value()->submit(request, [](const RequestEvent& e) { ... });   // called on the delivery thread
//
// With a list of sources each is a replica: a device with a model on it, and with its own actors. Requests go where the work
// ends soonest. A replica that is lost is started again from its source, and its requests go on elsewhere or in its next life,
// from the tokens that were delivered. Without a source (the form above) they end with `error`, and later ones are refused.
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

#include "actors/dispatcher/placement.h"
#include "actors/dispatcher/supervision.h"
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
  std::chrono::nanoseconds spin = {};  // how long the control thread spins before it parks; parked, it polls a GPU every 50 us
  int pin_control_thread = -1;         // a CPU, or -1; of several replicas the front's, and theirs on the CPUs behind it
  actors::LoraConfig lora{};
  std::string spill_dir{};                             // a folder for what preempted requests had computed; empty: it is computed again
  std::uint64_t spill_limit = std::uint64_t{4} << 30;  // bytes in it at most
  std::uint32_t spill_min_blocks = 4;                  // a request with no more full KV blocks than that is computed again
  // Of the device, at most, where the model takes them (CUDA): the second is for those copies, beside the steps; the third for steps
  // of prefill, beside those of decoding, with `depth` of them in flight as well.
  std::uint32_t streams = 2;
  actors::SchedulerFault fault = actors::SchedulerFault::none;
  actors::RouterFault router_fault = actors::RouterFault::none;
  // Recording of messages. Of several replicas each has its own, and so has the front: FILE.front, FILE.r0 and so on, and
  // FILE.r0.2 for the second life of the first.
  TraceOptions trace{};
  actors::PlacementConfig placement{};
  actors::SupervisionConfig supervision{};
};

// A device with a model on it. All replicas have the same model; how it computes may differ (ModelInfo::arithmetic_id).
struct OpenedReplica {
  std::unique_ptr<device::Driver> driver;
  std::unique_ptr<device::ModelDeviceFeed> model;
};
struct RemoteReplica;  // actors/link/nodes.h
struct ReplicaSource {
  std::string name;  // "host:0"
  // Called for each of its lives, the first time by start() and later on a thread of the runtime: one call at a time.
  std::function<Result<OpenedReplica>()> open;
  std::uint32_t weight = 1;                       // how much work it does in the time in which one of weight 1 does one
  std::shared_ptr<const RemoteReplica> remote{};  // in the place of `open`: it is on another machine
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
  TimeNs since_last_settled = 0;        // health: grows while work waits and nothing settles (R10); of several that work the shortest
  bool restarts = false;                // a replica that is lost is started again
  std::uint32_t unplaced = 0;           // of `waiting`: on no replica
  std::vector<ReplicaStatus> replicas;  // in order; the figures above are their sums, over all lives
};

class Runtime {
 public:
  // Takes the driver and the model over. Errors: what the driver says; bad_request for absurd options.
  static Result<std::unique_ptr<Runtime>> start(const RuntimeOptions& options, std::unique_ptr<device::Driver> driver,
                                                std::unique_ptr<device::ModelDeviceFeed> model);
  // All of them must start, but those on other machines, which may come later. Errors: also what a source says; bad_request:
  // their models differ; unavailable: all are on other machines, and none of these has said what model it has.
  static Result<std::unique_ptr<Runtime>> start(const RuntimeOptions& options, std::vector<ReplicaSource> sources);
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
  const ModelInfo& model() const;  // of several the least that all can do
  DeviceFacts facts() const;       // of several the sum
  RuntimeMetrics metrics() const;
  // Refuses new requests and waits until the accepted ones are done. False: the time ran out first.
  bool drain(std::chrono::nanoseconds limit);
  // The replicas by their index. Takes no more requests; returns once it has none. False: the time ran out, and it goes on
  // draining. Errors: not_found; unsupported: there is one, without a source; closed: it is given up.
  Result<bool> drain_replica(std::uint32_t index, std::chrono::nanoseconds limit);
  // Takes requests again; one that was given up is started.
  Result<void> undrain_replica(std::uint32_t index);
  // Writes what the flight recorder holds to a file that `troupe trace` reads; of several replicas to one for each and one
  // for the front, named as the files of RuntimeOptions::trace; with a `part`, "front" or "r0" and so on, that one alone, to
  // `path` itself. Works after stop() too. Errors: not_found, there is no such part;
  // bad_request when it is off, io_failed.
  Result<void> dump_trace(const std::string& path, std::string_view part = {}) const;
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
