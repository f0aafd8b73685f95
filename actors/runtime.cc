#include "actors/runtime.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <mutex>
#include <optional>
#include <random>
#include <shared_mutex>
#include <string>
#include <thread>
#include <utility>

#include "actors/delivery/actor.h"
#include "actors/dispatcher/actor.h"
#include "actors/keeper/actor.h"
#include "actors/link/nodes.h"
#include "actors/link/remote.h"
#include "actors/replica/place.h"
#include "actors/replica/sums.h"
#include "actors/wire.h"
#include "actors/wire/ask.h"

namespace troupe {

using namespace actors;

namespace {

constexpr std::chrono::seconds kStopGrace{2};        // beyond step_timeout, for a stop that finds the device stuck
constexpr std::chrono::seconds kRestartPatience{2};  // for a replica that is stopped to be started again

// Distinct for distinct x, and spread over all bits (splitmix64's finisher).
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

Error no_replicas() {
  return Error{ErrorCode::unsupported,
               "the runtime was started with one device that it cannot open again: there is nothing to drain it for"};
}

void report(const SchedulerFigures& f, ReplicaReport now, ReplicaStatus& to) {
  now.replica = to.replica;
  now.waiting = f.waiting;
  now.running = f.running;
  now.in_flight = f.in_flight;
  now.steps = f.stats.steps;
  now.steps_ahead = f.stats.steps_ahead;
  now.settled = f.stats.settled;
  now.tokens = f.stats.tokens;
  now.outstanding = to.report.outstanding;
  now.since_settled = f.last_settled == 0 ? 0 : now_ns() - f.last_settled;
  to.report = std::move(now);
}

}  // namespace

struct Runtime::Impl {
  RuntimeOptions options;
  bool alone = false;  // one replica, without a source: it is not restarted
  ModelInfo info;
  std::uint64_t tokens = 0;                                     // token_hash() of its vocabulary
  std::shared_ptr<Counts> counts = std::make_shared<Counts>();  // the front's; of a runtime that is recorded as a whole, all actors'
  std::shared_ptr<DeliveryThread> delivery_thread = std::make_shared<DeliveryThread>();
  std::unique_ptr<ControlConfig> config;
  std::unique_ptr<caf::actor_system> system;
  std::vector<std::unique_ptr<ReplicaPlace>> places;
  std::vector<ReplicaSource> remotes;  // on other machines; their indices follow those of `places`
  std::shared_ptr<const Doors> front;
  std::uint64_t seed_base = 0;
  std::atomic<std::uint64_t> seeds{0};

  std::atomic<bool> closing{false};
  mutable std::shared_mutex gate;  // held shared by every call that asks an actor; alone while the system goes
  std::mutex stopping;
  std::optional<Result<void>> stopped;  // guarded by `stopping`

  Result<void> start(std::vector<ReplicaSource> sources);
  Result<void> open();
  Result<void> start_system();
  Result<void> start_replicas();
  Result<void> stop();
  Result<void> give_back();
  DispatcherConfig dispatcher_config() const;
  bool several() const { return places.size() + remotes.size() > 1; }
  MakerDoor spawn_remote(std::size_t i, const Doors& doors) const;

  template <class R, class Handle, class M>
  Result<R> ask(const Handle& to, M message, std::optional<std::chrono::nanoseconds> limit = {}) const {
    return actors::ask<R>(*system, to, std::move(message), limit);
  }
};

Result<void> Runtime::Impl::start(std::vector<ReplicaSource> sources) {
  if (sources.empty()) return Error{ErrorCode::bad_request, "a runtime needs at least one replica"};
  if (sources.size() > kMostReplicas) {
    return Error{ErrorCode::bad_request,
                 std::to_string(sources.size()) + " replicas; at most " + std::to_string(kMostReplicas) + " are run"};
  }
  const std::size_t n = sources.size();
  for (ReplicaSource& source : sources) {
    if (source.remote) {
      remotes.push_back(std::move(source));
      continue;
    }
    if (!remotes.empty()) return Error{ErrorCode::bad_request, "name the replicas on other machines after those on this one"};
    const auto index = static_cast<std::uint32_t>(places.size());
    places.push_back(std::make_unique<ReplicaPlace>(options, std::move(source), index, n, !alone));
  }
  std::random_device entropy;
  seed_base = std::uint64_t{entropy()} << 32 | entropy();
  TROUPE_TRY(open());
  TROUPE_TRY(start_system());
  return start_replicas();
}

// Drivers and models; each by a thread of its own, since a large model takes its time.
Result<void> Runtime::Impl::open() {
  std::vector<std::future<Result<void>>> others;
  for (std::size_t i = 1; i < places.size(); ++i) {
    others.push_back(std::async(std::launch::async, [place = places[i].get()] { return place->open(1); }));
  }
  Result<void> opened = places.empty() ? success() : places[0]->open(1);
  for (auto& other : others) {
    if (const Result<void> one = other.get(); !one && opened) opened = one;
  }
  TROUPE_TRY(std::move(opened));
  std::optional<ModelInfo> least;
  const auto add = [&](const ModelInfo& one, std::uint64_t hash) -> Result<void> {
    if (!least) {
      least = one;
      tokens = hash;
    }
    if (tokens != hash) return Error{ErrorCode::bad_request, "the replicas have different vocabularies: give all of them one model"};
    TROUPE_TRY(least, common(*least, one));
    return success();
  };
  for (const auto& place : places) {
    const ModelInfo& own = place->replica()->info();
    TROUPE_TRY(add(own, remotes.empty() ? 0 : link::token_hash(own.tokens)));
  }
  for (const ReplicaSource& source : remotes) {
    if (!source.remote->model) continue;
    TROUPE_TRY(add(*source.remote->model, source.remote->tokens));
  }
  if (!least) {
    return Error{ErrorCode::unavailable, "none of the nodes answers, and there is no device here: start one of them first (troupe node)"};
  }
  info = std::move(*least);
  return success();
}

DispatcherConfig Runtime::Impl::dispatcher_config() const {
  DispatcherConfig c;
  c.max_live = options.max_live;
  if (alone) return c;
  for (const auto& place : places) c.replicas.push_back({place->name(), place->weight()});
  for (const ReplicaSource& source : remotes) c.replicas.push_back({source.name, source.weight, true});
  c.placement = options.placement;
  c.supervision = options.supervision;
  // The device actor says first that a step takes too long.
  c.supervision.progress_timeout = std::max(c.supervision.progress_timeout, options.step_timeout.count() * 3 / 2);
  return c;
}

Result<void> Runtime::Impl::start_system() {
  config = std::make_unique<ControlConfig>(ControlOptions{options.spin, options.pin_control_thread, several() ? places.size() + 1 : 1});
  if (several()) counts->place = {kFront, 1};
  if (!options.trace.file.empty() || options.trace.flight_bytes != 0) {
    TraceOptions trace = options.trace;
    if (several() && !trace.file.empty()) trace.file += ".front";
    if (several()) trace.flight_bytes /= places.size() + 1;
    trace::CoreConfigs configs = places.empty() ? trace::CoreConfigs{} : places[0]->replica()->configs();
    configs.dispatcher = dispatcher_config();
    configs.model = info;
    configs.part = counts->place.part;
    TROUPE_TRY(counts->recorder, trace::Recorder::start(trace, configs));
    config->idle_work[0] = {[](void* recorder) { return static_cast<trace::Recorder*>(recorder)->work(); }, counts->recorder};
  }
  system = actors::start_system(*config);
  counts->home = &config->home(0);
  Doors doors;
  doors.dispatcher = system->spawn<DispatcherShell>(counts, dispatcher_config(), info);
  doors.delivery = system->spawn<DeliveryShell, caf::detached>(counts, DeliveryConfig{!alone}, delivery_thread);
  const Front site{system.get(), doors.dispatcher, doors.delivery, counts};
  for (std::size_t i = 0; i < places.size() && !alone; ++i) {
    doors.makers.push_back(system->spawn<KeeperShell, caf::detached>(
        KeeperSetup{places[i].get(), site, doors.dispatcher, &config->home(several() ? i + 1 : 0), kRestartPatience}));
  }
  for (std::size_t i = 0; i < remotes.size(); ++i) doors.makers.push_back(spawn_remote(i, doors));
  front = std::make_shared<const Doors>(std::move(doors));
  return success();
}

// It keeps house at the front's; what it sends counts as its replica's.
MakerDoor Runtime::Impl::spawn_remote(std::size_t i, const Doors& doors) const {
  const RemoteReplica& remote = *remotes[i].remote;
  const std::size_t index = places.size() + i;
  auto own = std::make_shared<Counts>();
  own->home = counts->home;
  own->place = {static_cast<std::uint8_t>(several() ? kFirstReplica + index : kWhole), 1};
  link::RemoteSetup setup{remote.io, remote.node, {}, doors.dispatcher, doors.dispatcher, doors.delivery};
  setup.core.name = remotes[i].name;
  setup.core.owner = seed_base | 1;
  setup.core.replica = remote.replica;
  setup.core.heartbeat = remote.heartbeat.count();
  setup.core.silence = remote.silence.count();
  setup.core.model = info;
  setup.core.tokens = tokens;
  return system->spawn<link::RemoteShell>(std::move(own), setup);
}

Result<void> Runtime::Impl::start_replicas() {
  const Front site{system.get(), front->dispatcher, front->delivery, counts};
  for (std::size_t i = 0; i < places.size(); ++i) {
    TROUPE_TRY(places[i]->start(site, config->home(several() ? i + 1 : 0)));
  }
  const AttachFront everyone{front};
  caf::anon_send(front->delivery, everyone);
  caf::anon_send(front->dispatcher, everyone);
  for (const auto& place : places) caf::anon_send(front->dispatcher, joined(*place));
  for (std::size_t i = places.size(); i < front->makers.size(); ++i) {
    caf::anon_send(front->makers[i], StartReplica{{}, {static_cast<std::uint32_t>(i), 1}});
  }
  return success();
}

// The order: no new requests; nobody makes replicas; every request ends; callbacks have run; the routers settle what is in
// flight, also with the spill actors; only then do streams and devices give back what the steps used.
Result<void> Runtime::Impl::stop() {
  if (delivery_thread->id.load() == std::this_thread::get_id()) {
    return Error{ErrorCode::bad_request, "stop waits for the callbacks, so it cannot be called from one: call it from another thread"};
  }
  const std::lock_guard lock(stopping);
  if (stopped) return *stopped;
  closing = true;
  for (const auto& place : places) place->close();
  if (front) {
    end(*system, front->dispatcher);
    for (const MakerDoor& maker : front->makers) end(*system, maker);
    for (const ReplicaSource& source : remotes) source.remote->io->stop();
    for (const auto& place : places) place->quiet(runtime_closed());
    (void)ask<Done>(front->delivery, EndAll{runtime_closed()});
    end(*system, front->delivery);
  }
  const auto until = std::chrono::steady_clock::now() + options.step_timeout + kStopGrace;
  for (const auto& place : places) place->stop_device(until);
  stopped = give_back();
  if (counts->recorder) {
    const Result<void> recorded = counts->recorder->stop();
    if (!recorded && *stopped) stopped = recorded;
  }
  return *stopped;
}

Result<void> Runtime::Impl::give_back() {
  const std::unique_lock lock(gate);
  Result<void> first = success();
  bool abandoned = false;
  for (const auto& place : places) {
    Result<void> given = place->give_back();
    if (!given && first) first = std::move(given);
    abandoned = abandoned || place->abandoned();
  }
  front.reset();
  if (abandoned) {
    (void)system.release(), (void)config.release();
  }
  system.reset();
  config.reset();
  return first;
}

Runtime::Runtime(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Runtime::~Runtime() { (void)stop(); }

Result<std::unique_ptr<Runtime>> Runtime::start(const RuntimeOptions& options, std::unique_ptr<device::Driver> driver,
                                                std::unique_ptr<device::ModelDeviceFeed> model) {
  if (!driver || !model) return Error{ErrorCode::bad_request, "a runtime needs a driver and a model"};
  ReplicaSource source;
  source.name = driver->name();
  const auto given = std::make_shared<OpenedReplica>(OpenedReplica{std::move(driver), std::move(model)});
  source.open = [given]() -> Result<OpenedReplica> { return std::move(*given); };
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  impl->alone = true;
  std::unique_ptr<Runtime> runtime(new Runtime(std::move(impl)));  // gives driver and model back on every way out
  std::vector<ReplicaSource> sources;
  sources.push_back(std::move(source));
  TROUPE_TRY(runtime->impl_->start(std::move(sources)));
  return runtime;
}

Result<std::unique_ptr<Runtime>> Runtime::start(const RuntimeOptions& options, std::vector<ReplicaSource> sources) {
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  std::unique_ptr<Runtime> runtime(new Runtime(std::move(impl)));
  TROUPE_TRY(runtime->impl_->start(std::move(sources)));
  return runtime;
}

Submission Runtime::submit(Request request, RequestCallback callback) {
  const std::shared_lock lock(impl_->gate);
  if (impl_->closing) return Refusal{runtime_closed()};
  SubmitTo to;
  to.submit.request = Shared<Request>::of(std::move(request));
  to.submit.drawn_seed = mix(impl_->seed_base + impl_->seeds.fetch_add(1, std::memory_order_relaxed) * 0x9E3779B97F4A7C15ull);
  to.callback = std::make_shared<Callback>(std::move(callback));
  const auto reply = impl_->ask<SubmitReply>(impl_->front->dispatcher, std::move(to));
  if (!reply) return Refusal{reply.error()};
  const SubmitReply& answer = reply.value();
  if (answer.error.code != ErrorCode::none) return Refusal{answer.error, std::chrono::nanoseconds(answer.retry_after)};
  return answer.request;
}

CancelOutcome Runtime::cancel(std::uint64_t client) {
  const std::shared_lock lock(impl_->gate);
  if (impl_->closing) return CancelOutcome::not_found;
  const auto reply = impl_->ask<CancelReply>(impl_->front->dispatcher, Cancel{{}, client});
  return reply ? reply.value().outcome : CancelOutcome::not_found;
}

Result<void> Runtime::lora(LoraCommand command, LoraCallback done) {
  const std::shared_lock lock(impl_->gate);
  if (impl_->closing) return runtime_closed();
  LoraTo to{std::move(command), std::make_shared<LoraCallback>(std::move(done))};
  TROUPE_TRY(impl_->ask<Done>(impl_->front->dispatcher, std::move(to)));
  return success();
}

Result<LoraAck> Runtime::lora(LoraCommand command) {
  const auto answered = std::make_shared<std::promise<LoraAnswer>>();
  std::future<LoraAnswer> answer = answered->get_future();
  TROUPE_TRY(lora(std::move(command), [answered](const LoraAnswer& a) { answered->set_value(a); }));
  LoraAnswer a = answer.get();
  if (a.error.code != ErrorCode::none) return a.error;
  return std::move(a.ack);
}

const ModelInfo& Runtime::model() const { return impl_->info; }

DeviceFacts Runtime::facts() const { return metrics().facts; }

RuntimeMetrics Runtime::metrics() const {
  RuntimeMetrics m;
  const auto recorded = [&](const std::shared_ptr<trace::Recorder>& recorder) {
    if (!recorder) return;
    const trace::RecorderFigures figures = recorder->figures();
    m.trace_bytes += figures.bytes;
    m.trace_lost += figures.lost;
  };
  recorded(impl_->counts->recorder);
  m.messages = impl_->counts->total();
  for (const auto& place : impl_->places) {
    recorded(place->recorder());
    m.messages += place->messages();
    m.scheduler = sum(m.scheduler, place->retired());
  }
  m.restarts = !impl_->alone;
  const std::shared_lock lock(impl_->gate);
  if (impl_->closing) return m;
  if (auto list = impl_->ask<ReplicaList>(impl_->front->dispatcher, AskReplicas{})) {
    m.replicas = std::move(list.value().replicas);
    m.unplaced = list.value().waiting;
    m.waiting = m.unplaced;
  }
  for (const auto& place : impl_->places) {
    const auto peers = place->peers();
    if (!peers) continue;
    ReplicaReport now;  // newer than the last that the dispatcher has
    if (const auto facts = impl_->ask<DeviceFacts>(peers->router, Ask{})) {
      m.facts = sum(m.facts, facts.value());
      now.facts = facts.value();
    }
    const auto asked = impl_->ask<SchedulerFigures>(peers->scheduler, Ask{});
    if (!asked) continue;
    const SchedulerFigures& f = asked.value();
    if (place->index() < m.replicas.size()) report(f, now, m.replicas[place->index()]);
    m.scheduler = sum(m.scheduler, f.stats);
    m.waiting += f.waiting;
    m.running += f.running;
    if (f.waiting + f.running == 0) continue;
    const TimeNs since = now_ns() - std::max(f.last_settled, f.busy_since);
    m.since_last_settled = m.since_last_settled == 0 ? since : std::min(m.since_last_settled, since);
  }
  // Those on other machines say it in their reports.
  for (std::size_t i = impl_->places.size(); i < m.replicas.size(); ++i) {
    const ReplicaReport& r = m.replicas[i].report;
    m.facts = sum(m.facts, r.facts);
    m.scheduler.steps += r.steps;
    m.scheduler.steps_ahead += r.steps_ahead;
    m.scheduler.tokens += r.tokens;
    m.waiting += r.waiting;
    m.running += r.running;
    if (r.waiting + r.running == 0) continue;
    m.since_last_settled = m.since_last_settled == 0 ? r.since_settled : std::min(m.since_last_settled, r.since_settled);
  }
  return m;
}

Result<bool> Runtime::drain_replica(std::uint32_t index, std::chrono::nanoseconds limit) {
  const std::shared_lock lock(impl_->gate);
  if (impl_->closing) return runtime_closed();
  if (impl_->alone) return no_replicas();
  const auto answer = impl_->ask<ReplicaAnswer>(impl_->front->dispatcher, DrainReplica{{}, 0, index},
                                                std::max<std::chrono::nanoseconds>(limit, std::chrono::milliseconds{1}));
  if (!answer) return false;
  if (answer.value().error.code != ErrorCode::none) return answer.value().error;
  return true;
}

Result<void> Runtime::undrain_replica(std::uint32_t index) {
  const std::shared_lock lock(impl_->gate);
  if (impl_->closing) return runtime_closed();
  if (impl_->alone) return no_replicas();
  TROUPE_TRY(auto answer, impl_->ask<ReplicaAnswer>(impl_->front->dispatcher, UndrainReplica{{}, 0, index}));
  if (answer.error.code != ErrorCode::none) return answer.error;
  return success();
}

bool Runtime::drain(std::chrono::nanoseconds limit) {
  const std::shared_lock lock(impl_->gate);
  if (impl_->closing) return false;
  return impl_->ask<Drained>(impl_->front->dispatcher, Drain{}, std::max<std::chrono::nanoseconds>(limit, std::chrono::milliseconds{1}))
      .has_value();
}

Result<void> Runtime::dump_trace(const std::string& path, std::string_view part) const {
  if (!impl_->counts->recorder) return Error{ErrorCode::bad_request, "the flight recorder is off (TraceOptions::flight_bytes is 0)"};
  std::vector<std::pair<std::string, std::shared_ptr<trace::Recorder>>> parts{{"front", impl_->counts->recorder}};
  for (const auto& place : impl_->places) {
    if (auto recorder = place->recorder()) parts.emplace_back("r" + std::to_string(place->index()), std::move(recorder));
  }
  for (const auto& [name, recorder] : parts) {
    if (part == name) return recorder->dump(path);
  }
  if (!part.empty()) return Error{ErrorCode::not_found, "there is no part " + std::string(part) + " of the recording"};
  if (parts.size() == 1) return parts[0].second->dump(path);
  for (const auto& [name, recorder] : parts) {
    TROUPE_TRY(recorder->dump(path + "." + name));
  }
  return success();
}

Result<void> Runtime::stop() { return impl_->stop(); }

}  // namespace troupe
