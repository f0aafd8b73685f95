// The typed interfaces of all actors, and the messages of the edges (start, stop, questions), which never enter a core
// and are never recorded.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "actors/scheduler/core.h"
#include "actors/trace/sender.h"
#include "actors/wire/inspect.h"
#include "actors/wire/post.h"
#include "messages/protocol.h"

namespace troupe {
struct RequestEvent;  // actors/runtime.h
}

namespace troupe::actors {

struct Peers;
struct Doors;
using Callback = std::function<void(const RequestEvent&)>;

// ---- the edges
struct Attach {  // who the others are; once, at start
  std::shared_ptr<const Peers> peers;
};
struct SubmitTo {  // a submission and where its events go
  Submit submit;
  std::shared_ptr<Callback> callback;
};
using LoraCallback = std::function<void(const LoraAnswer&)>;
struct LoraTo {  // a command and where its answer goes; answered when the command was accepted
  LoraCommand command;
  std::shared_ptr<LoraCallback> callback;
};
struct Register {  // dispatcher -> delivery, before the request's first event can be
  RequestId id;
  std::shared_ptr<Callback> callback;
  std::uint32_t max_tokens = 0;
};
struct EndAll {  // -> delivery: what is still registered ends with this error; answered when the callbacks have run
  Error error;
};
struct Ask {};  // -> scheduler, router: the figures
struct SchedulerFigures {
  SchedulerStats stats;
  std::uint32_t waiting = 0;
  std::uint32_t running = 0;
  std::uint32_t in_flight = 0;
  TimeNs last_settled = 0;
  TimeNs busy_since = 0;  // when the first of the present requests came
};
struct AttachFront {  // -> dispatcher, delivery; once, at start
  std::shared_ptr<const Doors> doors;
};
struct StartDevice {};  // -> device: make stream, events and ring
struct DeviceStarted {
  Error error;
  std::uint64_t stream = 0;
  std::vector<std::uint64_t> cells;  // the feed-cell arrays, by ring slot
  std::uint64_t copy_stream = 0;     // 0: copies go on `stream`
  std::uint64_t prefill_stream = 0;  // 0: all steps go on `stream`
};
struct StopDevice {};  // -> device, stream: give everything back; answered when done
struct Done {          // the answer to an edge message: it is done, or not because of this
  Error error;
};
struct PollEvents {};  // stream -> device, once: the driver announces no completions, ask it
struct AttachStream {  // -> stream: the stream that it owns from now on, and the device's feed-cell arrays
  std::uint64_t stream = 0;
  std::vector<std::uint64_t> cells;
};

struct Joined;

// ---- what passes between the front (dispatcher, delivery) and a replica, which may be on another machine: these messages only
using FrontDoor =
    caf::typed_actor<caf::reacts_to<Ended>, caf::reacts_to<CancelReply>, caf::reacts_to<Drained>, caf::reacts_to<LoraAnswer>,
                     caf::reacts_to<LoraBound>, caf::reacts_to<AdapterFetched>, caf::reacts_to<ReplicaLost>, caf::reacts_to<ReplicaReport>>;
using DeliveryDoor = caf::typed_actor<caf::reacts_to<Deliver>>;
using RequestDoor = caf::typed_actor<caf::reacts_to<Admit>, caf::reacts_to<CancelRequest>, caf::reacts_to<Drain>>;
using WorkDoor = caf::typed_actor<caf::reacts_to<Halt>, caf::reacts_to<AskReport>>;
using LoraDoor = caf::typed_actor<caf::reacts_to<LoraSubmit>, caf::reacts_to<FetchAdapter>, caf::reacts_to<Ended>>;
// Who makes and stops a replica's lives: its keeper, or the link to its node.
using MakerDoor = caf::typed_actor<caf::reacts_to<StartReplica>, caf::reacts_to<StopReplica>>;

// Whom it tells how that went.
using OwnerDoor = caf::typed_actor<caf::reacts_to<Joined>, caf::reacts_to<ReplicaDown>>;

struct ReplicaDoors {
  RequestDoor requests;                    // by way of the LoRA controller, where there is one: it binds requests to adapters
  Sender requests_to = Sender::scheduler;  // who that is, for the record
  WorkDoor scheduler;
  LoraDoor lora;  // none: the model has no adapter slots
};
// keeper or link -> dispatcher: the replica is up. When one of `watch` ends, it is lost.
struct Joined {
  ReplicaUp up;
  ReplicaDoors doors;
  std::vector<caf::strong_actor_ptr> watch;
};

template <class I>
auto inspect(I& f, EndAll& x) {
  return f(x.error);
}
template <class I>
auto inspect(I& f, Ask&) {
  return f();
}
template <class I>
auto inspect(I& f, SchedulerStats& x) {
  return f(x.steps, x.decode_steps, x.steps_ahead, x.prefill_steps, x.rows, x.fed_rows, x.device_sampled, x.overruns, x.redone_rows,
           x.stale_results, x.failed_rows, x.preemptions, x.tokens, x.prefill_tokens, x.spills, x.spill_failures, x.restores,
           x.restore_failures);
}
template <class I>
auto inspect(I& f, SchedulerFigures& x) {
  return f(x.stats, x.waiting, x.running, x.in_flight, x.last_settled, x.busy_since);
}
template <class I>
auto inspect(I& f, StartDevice&) {
  return f();
}
template <class I>
auto inspect(I& f, DeviceStarted& x) {
  return f(x.error, x.stream, x.cells, x.copy_stream, x.prefill_stream);
}
template <class I>
auto inspect(I& f, StopDevice&) {
  return f();
}
template <class I>
auto inspect(I& f, Done& x) {
  return f(x.error);
}
template <class I>
auto inspect(I& f, PollEvents&) {
  return f();
}
template <class I>
auto inspect(I& f, AttachStream& x) {
  return f(x.stream, x.cells);
}

}  // namespace troupe::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::Attach)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::SubmitTo)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::LoraTo)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::Register)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::AttachFront)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::actors::Joined)

namespace troupe::actors {

using DispatcherActor =
    caf::typed_actor<caf::reacts_to<AttachFront>, caf::replies_to<SubmitTo>::with<SubmitReply>, caf::replies_to<Cancel>::with<CancelReply>,
                     caf::replies_to<Drain>::with<Drained>, caf::replies_to<LoraTo>::with<Done>,
                     caf::replies_to<DrainReplica>::with<ReplicaAnswer>, caf::replies_to<UndrainReplica>::with<ReplicaAnswer>,
                     caf::replies_to<AskReplicas>::with<ReplicaList>, caf::reacts_to<LoraAnswer>, caf::reacts_to<LoraBound>,
                     caf::reacts_to<AdapterFetched>, caf::reacts_to<CancelReply>, caf::reacts_to<Ended>, caf::reacts_to<Drained>,
                     caf::reacts_to<Joined>, caf::reacts_to<ReplicaDown>, caf::reacts_to<ReplicaLost>, caf::reacts_to<ReplicaReport>,
                     caf::reacts_to<Reclaimed>, caf::reacts_to<Delivered>, caf::reacts_to<Tick>>;

using SchedulerActor =
    caf::typed_actor<caf::reacts_to<Attach>, caf::reacts_to<Admit>, caf::reacts_to<CancelRequest>, caf::reacts_to<Opened>,
                     caf::reacts_to<Saved>, caf::reacts_to<Accepted>, caf::reacts_to<Settled>, caf::reacts_to<Sampled>,
                     caf::reacts_to<Applied>, caf::reacts_to<Tick>, caf::reacts_to<Drain>, caf::reacts_to<Halt>, caf::reacts_to<LoraHold>,
                     caf::reacts_to<LoraResume>, caf::reacts_to<AskReport>, caf::replies_to<Ask>::with<SchedulerFigures>>;

using RouterActor =
    caf::typed_actor<caf::reacts_to<Attach>, caf::reacts_to<RingReady>, caf::reacts_to<Open>, caf::reacts_to<Launch>, caf::reacts_to<Await>,
                     caf::reacts_to<Apply>, caf::reacts_to<Completed>, caf::reacts_to<CopyDone>, caf::reacts_to<StateWritten>,
                     caf::reacts_to<StateRead>, caf::reacts_to<EventRecorded>, caf::reacts_to<Lora>, caf::reacts_to<TableChanged>,
                     caf::replies_to<Teardown>::with<TornDown>, caf::replies_to<Ask>::with<DeviceFacts>>;

using SamplerActor = caf::typed_actor<caf::reacts_to<Attach>, caf::reacts_to<Sample>>;

using StreamActor =
    caf::typed_actor<caf::reacts_to<Attach>, caf::reacts_to<AttachStream>, caf::reacts_to<Enqueue>, caf::reacts_to<CopyBlocks>,
                     caf::reacts_to<ChangeTable>, caf::reacts_to<RecordEvent>, caf::replies_to<StopDevice>::with<Done>>;

using PrefillStreamActor = caf::typed_actor<caf::reacts_to<Attach>, caf::reacts_to<AttachStream>, caf::reacts_to<Enqueue>,
                                            caf::replies_to<StopDevice>::with<Done>>;

using CopyStreamActor = caf::typed_actor<caf::reacts_to<Attach>, caf::reacts_to<AttachStream>, caf::reacts_to<CopyBlocks>>;

using DeviceActor =
    caf::typed_actor<caf::replies_to<Attach>::with<Done>, caf::replies_to<StartDevice>::with<DeviceStarted>, caf::reacts_to<PollEvents>,
                     caf::reacts_to<Watch>, caf::reacts_to<EventDone>, caf::reacts_to<Tick>, caf::replies_to<StopDevice>::with<Done>>;

using SpillActor =
    caf::typed_actor<caf::reacts_to<Attach>, caf::reacts_to<WriteState>, caf::reacts_to<ReadState>, caf::reacts_to<DropState>>;

using DeliveryActor = caf::typed_actor<caf::reacts_to<AttachFront>, caf::reacts_to<Register>, caf::reacts_to<Deliver>,
                                       caf::reacts_to<Reclaim>, caf::reacts_to<EndRequests>, caf::replies_to<EndAll>::with<Done>>;

using LoraActor =
    caf::typed_actor<caf::reacts_to<Attach>, caf::reacts_to<Admit>, caf::reacts_to<CancelRequest>, caf::reacts_to<Drain>,
                     caf::reacts_to<Ended>, caf::reacts_to<LoraSubmit>, caf::reacts_to<AdapterLoaded>, caf::reacts_to<FetchAdapter>,
                     caf::reacts_to<AdapterRead>, caf::reacts_to<LoraReply>, caf::reacts_to<Tick>>;

using LoaderActor = caf::typed_actor<caf::reacts_to<Attach>, caf::reacts_to<LoadAdapter>, caf::reacts_to<ReadAdapter>>;

using KeeperActor = MakerDoor;

// For the record of who gets what.
template <>
inline constexpr Sender kReceiver<DispatcherActor> = Sender::dispatcher;
template <>
inline constexpr Sender kReceiver<FrontDoor> = Sender::dispatcher;
template <>
inline constexpr Sender kReceiver<WorkDoor> = Sender::scheduler;
template <>
inline constexpr Sender kReceiver<LoraDoor> = Sender::lora;
template <>
inline constexpr Sender kReceiver<DeliveryDoor> = Sender::delivery;
template <>
inline constexpr Sender kReceiver<SchedulerActor> = Sender::scheduler;
template <>
inline constexpr Sender kReceiver<RouterActor> = Sender::router;
template <>
inline constexpr Sender kReceiver<SamplerActor> = Sender::sampler;
template <>
inline constexpr Sender kReceiver<StreamActor> = Sender::stream;
template <>
inline constexpr Sender kReceiver<PrefillStreamActor> = Sender::prefill_stream;
template <>
inline constexpr Sender kReceiver<CopyStreamActor> = Sender::copy_stream;
template <>
inline constexpr Sender kReceiver<DeviceActor> = Sender::device;
template <>
inline constexpr Sender kReceiver<DeliveryActor> = Sender::delivery;
template <>
inline constexpr Sender kReceiver<SpillActor> = Sender::spill;
template <>
inline constexpr Sender kReceiver<LoraActor> = Sender::lora;
template <>
inline constexpr Sender kReceiver<LoaderActor> = Sender::loader;

// The front, and who makes each replica.
struct Doors {
  DispatcherActor dispatcher;
  DeliveryActor delivery;
  std::vector<MakerDoor> makers;  // by replica
};

// The actors of a replica, and its two doors to the front.
struct Peers {
  FrontDoor dispatcher;
  DeliveryDoor delivery;
  SchedulerActor scheduler;
  RouterActor router;
  SamplerActor sampler;
  StreamActor stream;
  CopyStreamActor copy_stream;        // none: copies go to `stream`
  PrefillStreamActor prefill_stream;  // none: all steps go to `stream`
  DeviceActor device;
  SpillActor spill;    // none: nothing is spilled
  LoraActor lora;      // none: the model has no adapter slots
  LoaderActor loader;  // likewise
};

}  // namespace troupe::actors
