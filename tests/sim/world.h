// The simulator: every core of one device in one thread, with a simulated stream in the place of driver and model. A
// seed chooses the order of delivery (per pair of actors first in, first out, as CAF promises), when steps complete,
// and what fails. After every message the books of router and scheduler are checked, by their own check() and by the
// Witness; every token is compared with what is expected, if that is known (R1), and counted (R5).
//
// What it does not replace: the cores are the real ones, the same objects that the CAF shells call.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "actors/device/core.h"
#include "actors/dispatcher/core.h"
#include "actors/lora/core.h"
#include "actors/router/core.h"
#include "actors/sampler/core.h"
#include "actors/scheduler/core.h"
#include "actors/spill/core.h"
#include "actors/trace/witness.h"
#include "tests/sim/sim_device.h"
#include "tests/sim/sim_files.h"
#include "tests/sim/sim_recorder.h"

namespace troupe::sim {

struct WorldOptions {
  std::uint64_t seed = 1;
  std::uint32_t depth = 2;
  std::uint32_t max_batch = 8;
  std::uint32_t step_tokens = 24;
  std::uint32_t ring_slots = 0;  // 0: depth + 1
  std::uint32_t max_live = 1024;
  std::uint32_t device_lag = 1;  // the device runs a step about once in (lag + messages that are ready) turns
  bool prefix_cache = true;
  bool record = false;     // keep a recording, for `troupe trace` and its checks
  bool own_checks = true;  // false: only the Witness, the device and the streams judge
  bool in_order = false;   // deliver first in, first out over all pairs: the schedule of an idle machine
  actors::SchedulerFault fault = actors::SchedulerFault::none;
  actors::RouterFault router_fault = actors::RouterFault::none;
  actors::LoraFault lora_fault = actors::LoraFault::none;
  actors::LoraPolicy lora_policy = actors::LoraPolicy::scoped;
  SimDeviceOptions device;  // with spill places, preempted sequences are saved
  std::uint32_t spill_min_blocks = 0;
  std::uint64_t spill_limit = ~std::uint64_t{0};
  actors::SpillFault spill_fault = actors::SpillFault::none;
  SimFilesOptions files;
};

// What a client saw of its newest request.
struct Stream {
  std::uint64_t generation = 0;
  std::vector<Token> tokens;
  std::vector<float> logprobs;
  std::string text;
  std::optional<Finish> finish;
};

class World {
 public:
  explicit World(const WorldOptions& options);

  // Submits a request (its `client` must be unused among live ones) and runs until the dispatcher has answered.
  SubmitReply submit(Request request);
  // Sends it; `expected`, if given, outlives the world: what the request's stream has to be, or to begin with.
  void post(Request request, const Stream* expected);
  void cancel(std::uint64_t client);
  void drain();
  void lora(LoraCommand command);
  void hold(AdapterRef adapter, TimeNs until);  // as a LoRA controller that is never heard of again

  // Delivers one message, completes one step or fires one timer, as the seed has it. False: nothing is left to do.
  bool step();
  // Until nothing is left or `limit` steps were taken; returns how many.
  std::uint64_t run(std::uint64_t limit = 1'000'000);
  // After run(): every request has its end (R5), the books are whole (R8), and teardown gives everything back.
  void finish();

  const std::map<std::uint64_t, Stream>& streams() const { return streams_; }  // by client
  const Stream& stream(std::uint64_t client) { return streams_[client]; }
  const std::vector<CancelReply>& cancels() const { return cancels_; }
  const std::vector<SubmitReply>& replies() const { return replies_; }
  const std::vector<Finish>& finishes() const { return finishes_; }
  bool drained() const { return drained_; }
  // The most steps that settled from one token of the client's newest request to the next one; 1: every step had one.
  std::uint64_t longest_gap(std::uint64_t client) const;
  const std::vector<LoraAnswer>& answers() const { return answers_; }  // to LoRA commands, in order
  // The first rule that was broken, with the message after which it was; empty if none.
  const std::string& violation() const { return violation_; }
  std::uint64_t messages() const { return messages_; }

  actors::SchedulerCore& scheduler() { return scheduler_; }
  actors::RouterCore& router() { return router_; }
  actors::LoraCore& lora_core() { return lora_; }
  actors::DeviceCore& device_core() { return device_core_; }
  SimDevice& device() { return device_; }
  actors::SpillCore& spill() { return *spill_; }
  SimFiles& files() { return *files_; }
  TimeNs now() const { return now_; }
  // The bytes of a recording's file (actors/trace/format.h) of what happened so far, if `record`.
  std::vector<std::uint8_t> recording();
  std::vector<std::string> log;  // one line a message, if keep_log
  bool keep_log = false;

 private:
  enum class Actor : std::uint8_t { edge, dispatcher, scheduler, router, stream, device, sampler, spill, lora, loader, copy_stream };
  using Message =
      std::variant<Submit, SubmitReply, Admit, Cancel, CancelRequest, CancelReply, Ended, Drain, Drained, Tick, Open, Opened, Launch,
                   Accepted, Settled, Apply, Applied, LoraReply, TornDown, Enqueue, Watch, EventDone, Completed, Sample, Sampled, Deliver,
                   Halt, Saved, CopyBlocks, CopyDone, WriteState, StateWritten, ReadState, StateRead, DropState, LoraSubmit, LoraAnswer,
                   LoadAdapter, AdapterLoaded, LoraHold, LoraResume, Lora, ChangeTable, TableChanged, RecordEvent, EventRecorded>;
  struct Queue {
    Actor from;
    Actor to;
    std::deque<std::pair<std::uint64_t, Message>> messages;  // with their global order
  };
  // An accepted request.
  struct Accepting {
    RequestId id;
    const Stream* expected = nullptr;
    std::uint32_t tokens = 0;
    bool ended = false;
    std::size_t commands = 0;  // that were accepted before it
  };
  // A LoRA command, in the order in which the dispatcher took them.
  struct Commanded {
    LoraSubmit submit;
    std::optional<LoraAnswer> answer;
  };

  void send(Actor from, Actor to, Message m);
  static actors::Sender sender_of(Actor actor);
  template <class M>
  void sent(Actor from, Actor to, M& m);
  template <class M>
  void received(Actor to, const M& m);
  void deliver(Actor to, const Message& m);
  template <class Core, class M, class Out>
  void call(Actor self, Core& core, const M& m, Out& out);
  template <class M>
  void route(Actor self, M m);
  template <class M>
  void observe(const M& m);
  void receive(const TokenBatch& batch);
  void end(const Finish& f);
  void bound(const Admit& m);
  Stream& stream_of(const RequestId& id);
  Accepting* accepted(const RequestId& id);
  bool fire_timer(bool idle);
  void broken(std::string what);

  WorldOptions options_;
  std::uint32_t ring_slots_;
  std::mt19937_64 random_;
  ModelInfo model_;
  SimDevice device_;
  actors::trace::Witness witness_;
  actors::DispatcherCore dispatcher_;
  actors::SchedulerCore scheduler_;
  actors::RouterCore router_;
  actors::DeviceCore device_core_;
  actors::SamplerCore sampler_;
  std::shared_ptr<SimFiles> files_;
  std::unique_ptr<actors::SpillCore> spill_;
  actors::SpillOutbox spill_out_;
  actors::LoraCore lora_;
  actors::DispatcherOutbox dispatcher_out_;
  actors::SchedulerOutbox scheduler_out_;
  actors::RouterOutbox router_out_;
  actors::DeviceOutbox device_out_;
  actors::SamplerOutbox sampler_out_;
  actors::LoraOutbox lora_out_;
  std::vector<Queue> queues_;
  std::vector<std::size_t> ready_;
  std::optional<TimeNs> timers_[11];  // by actor
  std::vector<SubmitReply> replies_;
  std::map<std::uint64_t, Stream> streams_;
  std::vector<Accepting> accepted_;  // by generation - 1
  std::unordered_map<const Request*, const Stream*> expected_;
  std::vector<CancelReply> cancels_;
  std::vector<Commanded> commands_;
  struct Pace {
    RequestId id;
    std::uint64_t last = 0, longest = 0;  // in settled_
  };
  std::map<std::uint64_t, Pace> paces_;  // by client
  std::uint64_t settled_ = 0;            // steps that the scheduler heard of
  std::vector<LoraAnswer> answers_;
  std::uint64_t lora_ids_ = 0;
  std::map<AdapterRef, std::string> loaded_;  // which file a generation holds
  std::deque<Stream> oracles_;                // of requests that are bound to an adapter
  std::vector<Finish> finishes_;
  bool drained_ = false;
  bool unsafe_ = false;  // a copy may write blocks at any time, beside the steps: the device is of no more use
  std::string violation_;
  std::uint64_t messages_ = 0;
  std::uint64_t order_ = 0;
  std::uint32_t refusals_ = 0;  // launches refused since anything else happened
  TimeNs now_ = 1;
  SimRecorder recorder_;
};

// The stream that the simulated model gives `request` when nothing disturbs it: the oracle for R1.
std::vector<Token> expected_tokens(const Request& request, const ModelInfo& model, const SimDeviceOptions& device,
                                   std::uint64_t adapter = 0);

}  // namespace troupe::sim
