// The simulator: every core of a runtime in one thread, with a simulated stream in the place of driver and model. A
// seed chooses the order of delivery (per pair of actors first in, first out, as CAF promises), when steps complete,
// and what fails. After every message the books of router and scheduler are checked, by their own check() and by the
// Witness; every token is compared with what is expected, if that is known (R1), and counted (R5).
//
// With WorldOptions::replicas it has several (world_replicas.cc): they are lost in every way there is, started again, and what is
// said between them and the front is delayed, or lost with the link that it was on.
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

#include "actors/delivery/core.h"
#include "actors/dispatcher/core.h"
#include "tests/sim/part.h"
#include "tests/sim/sim_recorder.h"

namespace troupe::sim {

struct WorldOptions {
  std::uint64_t seed = 1;
  std::uint32_t depth = 2;
  std::uint32_t max_batch = 8;
  std::uint32_t step_tokens = 24;
  std::uint32_t ring_slots = 0;  // of a stream; 0: depth + 1
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

  // Several replicas
  std::uint32_t replicas = 0;               // 0: one, which nobody watches
  std::vector<SimDeviceOptions> devices{};  // their first lives'; what is not there is `device`. Later lives have no faults
  std::vector<std::string> arithmetic{};    // what is not there is "sim"
  std::uint32_t link_lag = 1;               // what is said between a replica and the front gets on about once in so many turns
  std::uint32_t failed_starts = 0;          // of the first restarts
  std::uint32_t max_restarts = 8;
  std::uint32_t max_moves = 8;
  actors::PlacementConfig placement{};
  actors::DispatcherFault dispatcher_fault = actors::DispatcherFault::none;
  actors::DeliveryFault delivery_fault = actors::DeliveryFault::none;
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
  // What becomes of a replica, by index. Nothing happens if it is not there at the moment.
  enum class Blow : std::uint8_t {
    kill,    // an actor of it dies
    freeze,  // it takes up nothing more, and nobody is told
    cut,     // its link breaks
    slow,    // its device
    accuse,  // it is said to be lost, and lives on until it is stopped
  };
  static constexpr std::uint32_t kBlows = 5;
  void strike(std::uint32_t index, Blow blow);
  void drain_replica(std::uint32_t index);
  void undrain_replica(std::uint32_t index);

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

  actors::SchedulerCore& scheduler() { return parts_[0]->scheduler; }
  actors::RouterCore& router() { return parts_[0]->router; }
  actors::LoraCore& lora_core() { return parts_[0]->lora; }
  actors::DeviceCore& device_core() { return parts_[0]->device_core; }
  SimDevice& device() { return parts_[0]->device; }
  actors::SpillCore& spill() { return parts_[0]->spill; }
  SimFiles& files() { return *parts_[0]->files; }
  const std::vector<std::unique_ptr<Part>>& parts() const { return parts_; }  // all lives, in the order in which they began
  actors::DispatcherCore& dispatcher() { return dispatcher_; }
  const actors::DeliveryCore& delivery() const { return delivery_; }
  const std::vector<ReplicaAnswer>& replica_answers() const { return replica_answers_; }
  TimeNs now() const { return now_; }
  // The bytes of a recording's file (actors/trace/format.h) of what happened so far, if `record`.
  std::vector<std::uint8_t> recording();
  std::vector<std::string> log;  // one line a message, if keep_log
  bool keep_log = false;

 private:
  // One end of a message: an actor, and of which life (index of parts_; 0 for the front).
  struct End {
    Actor actor = Actor::edge;
    std::uint32_t part = 0;
    bool operator==(const End&) const = default;
  };
  using Message = std::variant<Submit, SubmitReply, Admit, Cancel, CancelRequest, CancelReply, Ended, Drain, Drained, Tick, Open, Opened,
                               Launch, Accepted, Settled, Apply, Applied, LoraReply, TornDown, Enqueue, Watch, EventDone, Completed, Sample,
                               Sampled, Deliver, Halt, Saved, CopyBlocks, CopyDone, WriteState, StateWritten, ReadState, StateRead,
                               DropState, LoraSubmit, LoraAnswer, LoadAdapter, AdapterLoaded, LoraHold, LoraResume, Lora, ChangeTable,
                               TableChanged, Reclaim, Reclaimed, EndRequests, Delivered, AskReport, StartReplica, StopReplica, ReplicaUp,
                               ReplicaDown, ReplicaLost, ReplicaReport, ReplicaAnswer, ReplicaList, DrainReplica, UndrainReplica, LoraBound,
                               FetchAdapter, AdapterFetched, ReadAdapter, AdapterRead, RecordEvent, EventRecorded>;
  struct Queue {
    End from;
    End to;
    std::deque<std::pair<std::uint64_t, Message>> messages;  // with their global order
  };
  // An accepted request.
  struct Accepting {
    RequestId id;
    const Stream* expected = nullptr;
    const Stream* base = nullptr;  // without an adapter
    std::uint32_t tokens = 0;
    bool ended = false;
    std::size_t commands = 0;           // that were accepted before it
    std::uint32_t attempt = 0;          // of its last Admit
    std::uint32_t counts = 0;           // the attempt that counts, at delivery
    std::string arithmetic{};           // of the replicas that its output comes from
    bool other_arithmetic = false;      // they are not the same
    std::optional<std::string> file{};  // that its adapter is from
  };
  // A LoRA command, in the order in which the dispatcher took them.
  struct Commanded {
    LoraSubmit submit;
    std::optional<LoraAnswer> answer;
  };

  void send(End from, End to, Message m);
  static actors::Sender sender_of(Actor actor);
  template <class M>
  void sent(End from, End to, M& m) {
    recorder_.sent(sender_of(from.actor), sender_of(to.actor), now_, m);
  }
  template <class M>
  void received(End to, const M& m) {
    recorder_.received(sender_of(to.actor), now_, m);
  }
  void deliver(End to, const Message& m);
  template <class M>
  void take_up(End to, const M& m);
  template <class Core, class M, class Out>
  void call(End self, Core& core, const M& m, Out& out);
  template <class M>
  void route(End self, M m);
  template <class M>
  void observe(End to, const M& m);
  template <class M>
  void watch(End self, const M& m);
  void accept(const RequestId& id);
  void placed(const Admit& m);
  void same_logprob(const TokenEvent& e, float right);
  void judge_error(const Finish& f);
  void in_order(const Accepting& a, const Admit& m);
  void in_order(const Accepting& a, const Part& part, const Admit& m, const std::string& file);
  PartConfig part_config(ReplicaRef ref) const;
  void add_part(ReplicaRef ref);
  // world_replicas.cc
  std::optional<std::uint32_t> part_of(ReplicaRef ref) const;  // also of a life that is over
  std::optional<std::uint32_t> living(std::uint32_t index) const;
  void keep(const StartReplica& m);
  void keep(const StopReplica& m);
  bool takes(End to) const;  // whether it may take up a message now
  void finish(std::uint32_t part);
  void receive(const TokenBatch& batch);
  void dropped(const TokenBatch& batch);
  void end(const Finish& f, std::string_view text);
  void bound(Part& part, const Admit& m);
  Stream& stream_of(const RequestId& id);
  Accepting* accepted(const RequestId& id);
  bool fire_timer(bool idle);
  void broken(std::string what);

  WorldOptions options_;
  std::uint32_t ring_slots_;
  std::mt19937_64 random_;
  ModelInfo model_;
  actors::DispatcherCore dispatcher_;
  actors::DeliveryCore delivery_;
  std::vector<std::unique_ptr<Part>> parts_;
  actors::DispatcherOutbox dispatcher_out_;
  actors::DeliveryOutbox delivery_out_;
  std::vector<Queue> queues_;
  std::vector<std::size_t> ready_;
  std::vector<std::uint32_t> devices_;     // whose device can go on
  std::optional<TimeNs> timers_[kActors];  // of the front, by actor
  std::vector<ReplicaRef> fenced_;
  std::uint32_t failed_starts_ = 0;
  std::uint64_t questions_ = 0;
  std::vector<ReplicaAnswer> replica_answers_;
  std::vector<SubmitReply> replies_;
  Shared<Request> submitting_;
  std::map<std::uint64_t, Stream> streams_;
  std::map<std::uint64_t, Stream> generations_;  // of several replicas: the streams of one client may overlap
  std::vector<Accepting> accepted_;              // by generation - 1
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
  std::deque<Stream> oracles_;  // of requests that are bound to an adapter
  std::vector<Finish> finishes_;
  bool drained_ = false;
  std::string violation_;
  std::uint64_t messages_ = 0;
  std::uint64_t order_ = 0;
  TimeNs now_ = 1;
  SimRecorder recorder_;
};

// The stream that the simulated model gives `request` when nothing disturbs it: the oracle for R1.
std::vector<Token> expected_tokens(const Request& request, const ModelInfo& model, const SimDeviceOptions& device,
                                   std::uint64_t adapter = 0);

}  // namespace troupe::sim
