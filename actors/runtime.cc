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
#include "actors/device/actor.h"
#include "actors/dispatcher/actor.h"
#include "actors/lora/actor.h"
#include "actors/router/actor.h"
#include "actors/sampler/actor.h"
#include "actors/scheduler/actor.h"
#include "actors/spill/actor.h"
#include "actors/spill/posix_files.h"
#include "actors/stream/actor.h"
#include "actors/stream/copy_actor.h"
#include "actors/wire.h"

namespace troupe {

using namespace actors;

namespace {

constexpr std::chrono::seconds kStopGrace{2};  // beyond step_timeout, for a stop that finds the device stuck
constexpr std::chrono::milliseconds kStopPoll{5};
constexpr std::uint32_t kSpillPlaces = 2;   // saves and restores at a time
constexpr std::uint32_t kSpillBlocks = 16;  // that each has page-locked memory for

Error closed() { return Error{ErrorCode::closed, "the runtime has stopped; start another"}; }

Error check(const RuntimeOptions& o, const ModelInfo& m) {
  const auto bad = [](std::string what) { return Error{ErrorCode::bad_request, std::move(what)}; };
  if (o.depth == 0 || o.depth > 8) return bad("depth is " + std::to_string(o.depth) + "; it must be 1 (every step settles first) to 8");
  if (o.max_batch == 0) return bad("max_batch is 0; at least one request must be able to run");
  if (o.max_live == 0) return bad("max_live is 0; at least one request must be let in");
  if (o.streams == 0 || o.streams > 2) return bad("streams is " + std::to_string(o.streams) + "; it must be 1, or 2: one for steps, one for copies");
  if (o.step_tokens == 0) return bad("step_tokens is 0; a step needs room for at least one token");
  if (o.step_timeout <= std::chrono::nanoseconds::zero()) return bad("step_timeout must be above 0");
  if (o.spin < std::chrono::nanoseconds::zero()) return bad("spin must not be negative");
  if (o.kv_blocks > m.kv_blocks) {
    return bad("kv_blocks is " + std::to_string(o.kv_blocks) + " and the model was loaded with " + std::to_string(m.kv_blocks) +
               "; load it with more, or ask for fewer");
  }
  if (m.kv_blocks == 0 || m.n_slots == 0 || m.block_size == 0 || m.max_rows == 0) {
    return bad("the model says that it has no KV blocks, slots or rows");
  }
  return {};
}

// Distinct for distinct x, and spread over all bits (splitmix64's finisher).
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

std::string figures(const device::DriverUsage& u) {
  return std::to_string(u.streams) + " streams, " + std::to_string(u.events) + " events, " + std::to_string(u.graphs) + " graphs, " +
         std::to_string(u.pinned_bytes) + " page-locked bytes, " + std::to_string(u.device_bytes) + " bytes on the device";
}

}  // namespace

// CAF leaves the system's logger in a thread-local variable of whoever used a scoped actor, and the end of the system
// waits until nobody holds it: a thread that called the runtime once, and lives on, would hang stop() for ever.
struct ForgetLogger {
  ~ForgetLogger() { caf::logger::set_current_actor_system(nullptr); }
};

struct Runtime::Impl {
  RuntimeOptions options;
  ModelInfo info;
  std::unique_ptr<device::Driver> driver;
  std::unique_ptr<device::ModelDeviceFeed> model;
  std::shared_ptr<Counts> counts = std::make_shared<Counts>();
  trace::CoreConfigs configs;
  std::shared_ptr<DeliveryThread> delivery_thread = std::make_shared<DeliveryThread>();
  std::unique_ptr<ControlConfig> config;
  std::unique_ptr<caf::actor_system> system;
  std::shared_ptr<const Peers> peers;
  std::shared_ptr<StateFiles> spilled;  // none: nothing is spilled
  std::uint64_t seed_base = 0;
  std::atomic<std::uint64_t> seeds{0};

  std::atomic<bool> closing{false};
  mutable std::shared_mutex gate;  // held shared by every call that asks an actor; alone while the system goes
  std::mutex stopping;
  std::optional<Result<void>> stopped;  // guarded by `stopping`

  Result<void> start();
  void attach(DeviceActor device, DeviceStarted started);
  Result<void> stop();
  Result<void> stop_device();
  Result<void> give_back(Result<void> first);

  // One request and its answer. closed: the actor is gone, or no answer came in time.
  template <class R, class Handle, class M>
  Result<R> ask(const Handle& to, M message, std::optional<std::chrono::nanoseconds> limit = {}) const {
    const ForgetLogger forget;  // after the scoped actor is gone
    caf::scoped_actor self{*system};
    Result<R> result = closed();
    const auto take = [&](R& answer) { result = std::move(answer); };
    const auto fail = [&](caf::error&) {};
    if (limit) {
      const caf::duration wait{std::chrono::ceil<std::chrono::milliseconds>(*limit)};
      self->request(to, wait, std::move(message)).receive(take, fail);
    } else {
      self->request(to, caf::infinite, std::move(message)).receive(take, fail);
    }
    return result;
  }
  // Lets an actor work off its mailbox and end, and waits until it has.
  template <class Handle>
  void end(const Handle& actor) const {
    const ForgetLogger forget;  // after the scoped actor is gone
    caf::scoped_actor self{*system};
    caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
    self->wait_for(actor);
  }
};

Result<void> Runtime::Impl::start() {
  config = std::make_unique<ControlConfig>(ControlOptions{options.spin, options.pin_control_thread});
  if (!options.spill_dir.empty()) {
    if (model->kv_block_bytes() == 0) return Error{ErrorCode::unsupported, "this model cannot copy its KV blocks: leave spill_dir empty"};
    TROUPE_TRY(spilled, PosixStateFiles::open(options.spill_dir));
  }
  const CopyPlaces places{spilled ? kSpillPlaces : 0, std::min(kSpillBlocks, info.kv_blocks), model->kv_block_bytes(),
                          std::min(options.streams, info.streams) > 1};
  std::random_device entropy;
  seed_base = std::uint64_t{entropy()} << 32 | entropy();

  const std::uint32_t depth = std::min(options.depth, std::max(info.max_depth, 1u));
  options.depth = depth;
  const DeviceSetup setup{driver.get(), {model->cells_bytes(), model->upload_bytes()}, depth + 1, options.step_timeout.count(), places};
  configs.dispatcher.max_live = options.max_live;
  configs.router.depth = depth;
  configs.router.fault = options.router_fault;
  configs.scheduler.router_incarnation = configs.router.incarnation;
  configs.scheduler.depth = depth;
  configs.scheduler.max_batch = options.max_batch;
  configs.scheduler.step_tokens = options.step_tokens;
  configs.scheduler.spill_places = places.count;
  configs.scheduler.spill_min_blocks = options.spill_min_blocks;
  configs.scheduler.fault = options.fault;
  configs.device = {setup.ring_slots, setup.step_timeout, places.count};
  configs.lora = options.lora;
  configs.spill.limit_bytes = options.spill_limit;
  configs.model = info;
  if (!options.trace.file.empty() || options.trace.flight_bytes != 0) {
    TROUPE_TRY(counts->recorder, trace::Recorder::start(options.trace, configs));
    config->idle_work = {[](void* recorder) { return static_cast<trace::Recorder*>(recorder)->work(); }, counts->recorder};
  }
  system = std::make_unique<caf::actor_system>(*config);
  DeviceActor device = system->spawn<DeviceShell>(counts, setup, info);
  auto started = ask<DeviceStarted>(device, StartDevice{});
  if (started && started.value().error.code != ErrorCode::none) started = started.value().error;
  if (!started) {
    end(device);
    return started.error();
  }
  attach(std::move(device), std::move(started.value()));
  return success();
}

void Runtime::Impl::attach(DeviceActor device, DeviceStarted started) {
  Peers p;
  p.device = std::move(device);
  p.delivery = system->spawn<DeliveryShell, caf::detached>(counts, DeliveryConfig{}, delivery_thread);
  p.sampler = system->spawn<SamplerShell, caf::detached>(counts, info.vocab_size);
  const StreamSetup stream{driver.get(), model.get(), options.depth + 1, spilled ? kSpillPlaces : 0};
  if (driver->runs_kernels()) {
    p.stream = system->spawn<StreamShell, caf::detached>(counts, stream);  // launching a step's kernels takes its time
  } else {
    p.stream = system->spawn<StreamShell>(counts, stream);
  }
  if (started.copy_stream != 0) {
    p.copy_stream = system->spawn<CopyStreamShell, caf::detached>(counts, driver.get(), model.get(), options.depth + 1, kSpillPlaces);
  }
  if (spilled) p.spill = system->spawn<SpillShell, caf::detached>(counts, configs.spill, info, spilled);
  p.router = system->spawn<RouterShell>(counts, configs.router, info);
  p.scheduler = system->spawn<SchedulerShell>(counts, configs.scheduler, info);
  if (info.max_loras > 0) {
    p.lora = system->spawn<LoraShell>(counts, configs.lora, info);
    p.loader = system->spawn<LoaderShell, caf::detached>(counts, model.get());
  }
  p.dispatcher = system->spawn<DispatcherShell>(counts, configs.dispatcher, info);
  peers = std::make_shared<const Peers>(std::move(p));

  const Attach everyone{peers};
  caf::anon_send(peers->sampler, everyone);
  if (peers->spill) caf::anon_send(peers->spill, everyone);
  caf::anon_send(peers->stream, everyone);
  caf::anon_send(peers->stream, AttachStream{started.stream, std::move(started.cells)});
  if (peers->copy_stream) {
    caf::anon_send(peers->copy_stream, everyone);
    caf::anon_send(peers->copy_stream, AttachStream{started.copy_stream, {}});
  }
  caf::anon_send(peers->router, everyone);
  caf::anon_send(peers->scheduler, everyone);
  if (peers->lora) {
    caf::anon_send(peers->lora, everyone);
    caf::anon_send(peers->loader, everyone);
  }
  caf::anon_send(peers->dispatcher, everyone);
  (void)ask<Done>(peers->device, everyone);  // RingReady is on its way before the first request
}

// The order: no new requests; every request ends; callbacks have run; the router settles what is in flight, also with the
// spill actor; only then do stream and device give back what the steps used.
Result<void> Runtime::Impl::stop() {
  if (delivery_thread->id.load() == std::this_thread::get_id()) {
    return Error{ErrorCode::bad_request, "stop waits for the callbacks, so it cannot be called from one: call it from another thread"};
  }
  const std::lock_guard lock(stopping);
  if (stopped) return *stopped;
  closing = true;
  Result<void> result = success();
  if (peers) {
    end(peers->dispatcher);
    if (peers->lora) {
      end(peers->lora);
      end(peers->loader);
    }
    caf::anon_send(peers->scheduler, Halt{{}, closed()});
    end(peers->scheduler);
    end(peers->sampler);
    (void)ask<Done>(peers->delivery, EndAll{closed()});
    end(peers->delivery);
    result = stop_device();
  }
  stopped = give_back(std::move(result));
  if (counts->recorder) {
    const Result<void> recorded = counts->recorder->stop();
    if (!recorded && *stopped) stopped = recorded;
  }
  return *stopped;
}

Result<void> Runtime::Impl::stop_device() {
  const auto limit = options.step_timeout + kStopGrace;
  const auto until = std::chrono::steady_clock::now() + limit;
  const auto torn = ask<TornDown>(peers->router, Teardown{}, limit);
  Result<void> result = success();
  if (torn) {
    const DeviceFacts& f = torn.value().facts;
    if (f.free_blocks + f.cached_blocks != f.total_blocks || f.free_slots != f.total_slots) {
      result = Error{ErrorCode::internal, "the router's pools were not whole at teardown (" + label(f) + "); please report this"};
    }
    end(peers->router);
    if (peers->spill) end(peers->spill);  // nothing uses the places' memory any more
    (void)ask<Done>(peers->stream, StopDevice{});
  } else if (peers->spill) {
    // A file may still be written from memory of the device's: it is left to whoever does.
    return Error{ErrorCode::device_failed, "the router did not settle its steps and copies in time"};
  }
  // A step that failed half-way may still have work on the stream.
  Result<void> gone = success();
  do {
    auto done = ask<Done>(peers->device, StopDevice{});
    gone = success();
    if (!done) {
      gone = done.error();
    } else if (done.value().error.code != ErrorCode::none) {
      gone = done.value().error;
    }
    if (gone || gone.error().code != ErrorCode::device_failed) break;
    std::this_thread::sleep_for(kStopPoll);
  } while (std::chrono::steady_clock::now() < until);
  if (!gone) return gone;
  if (!torn) return Error{ErrorCode::internal, "the router did not settle its steps in time"};
  end(peers->stream);
  if (peers->copy_stream) end(peers->copy_stream);
  end(peers->device);
  return result;
}

Result<void> Runtime::Impl::give_back(Result<void> first) {
  const std::unique_lock lock(gate);
  const bool stuck = !first && first.error().code == ErrorCode::device_failed;
  if (stuck) {
    // A thread of the driver is still at work on a step and will call into the stream actor when it is done: everything
    // that it can reach is left to it.
    config->kept_alive = std::move(peers);
    (void)driver.release(), (void)model.release(), (void)system.release(), (void)config.release();
    return Error{ErrorCode::device_lost,
                 "the device was still busy when the time to stop was over; what it holds is abandoned (" + first.error().what + ")"};
  }
  if (peers) {
    end(peers->router);
    end(peers->stream);
    if (peers->copy_stream) end(peers->copy_stream);
    end(peers->device);
  }
  spilled.reset();
  if (driver) (void)driver->bind_thread();  // whoever stops the runtime frees the model's memory
  model.reset();
  if (driver) {
    const device::DriverUsage usage = driver->usage();
    const bool whole = usage.streams == 0 && usage.events == 0 && usage.pinned_bytes == 0 && usage.device_bytes == 0 && usage.graphs == 0;
    if (!whole && !first) {
      first = Error{first.error().code, first.error().what + "; abandoned: " + figures(usage)};
    } else if (!whole && usage.abandoned != 0) {
      first = Error{ErrorCode::device_lost, "the device was lost while it was given back what it had lent; abandoned: " + figures(usage)};
    } else if (!whole) {
      first = Error{ErrorCode::internal, "not given back to the driver: " + figures(usage) + "; please report this"};
    }
    driver.reset();  // joins the streams' threads, which may still be in a call of the stream actor's
  }
  peers.reset();
  system.reset();
  config.reset();
  return first;
}

Runtime::Runtime(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Runtime::~Runtime() { (void)stop(); }

Result<std::unique_ptr<Runtime>> Runtime::start(const RuntimeOptions& options, std::unique_ptr<device::Driver> driver,
                                                std::unique_ptr<device::ModelDeviceFeed> model) {
  if (!driver || !model) return Error{ErrorCode::bad_request, "a runtime needs a driver and a model"};
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  impl->info = model->info();
  impl->driver = std::move(driver);
  impl->model = std::move(model);
  Error wrong = check(options, impl->info);
  if (options.kv_blocks != 0) impl->info.kv_blocks = std::min(impl->info.kv_blocks, options.kv_blocks);
  if (!impl->model->supports_device_token_feed()) impl->info.max_depth = 1;
  std::unique_ptr<Runtime> runtime(new Runtime(std::move(impl)));  // gives driver and model back on every way out
  if (wrong.code != ErrorCode::none) return wrong;
  TROUPE_TRY(runtime->impl_->start());
  return runtime;
}

Submission Runtime::submit(Request request, RequestCallback callback) {
  const std::shared_lock lock(impl_->gate);
  if (impl_->closing) return Refusal{closed()};
  SubmitTo to;
  to.submit.request = Shared<Request>::of(std::move(request));
  to.submit.drawn_seed = mix(impl_->seed_base + impl_->seeds.fetch_add(1, std::memory_order_relaxed) * 0x9E3779B97F4A7C15ull);
  to.callback = std::make_shared<Callback>(std::move(callback));
  const auto reply = impl_->ask<SubmitReply>(impl_->peers->dispatcher, std::move(to));
  if (!reply) return Refusal{reply.error()};
  const SubmitReply& answer = reply.value();
  if (answer.error.code != ErrorCode::none) return Refusal{answer.error, std::chrono::nanoseconds(answer.retry_after)};
  return answer.request;
}

CancelOutcome Runtime::cancel(std::uint64_t client) {
  const std::shared_lock lock(impl_->gate);
  if (impl_->closing) return CancelOutcome::not_found;
  const auto reply = impl_->ask<CancelReply>(impl_->peers->dispatcher, Cancel{{}, client});
  return reply ? reply.value().outcome : CancelOutcome::not_found;
}

Result<void> Runtime::lora(LoraCommand command, LoraCallback done) {
  const std::shared_lock lock(impl_->gate);
  if (impl_->closing) return closed();
  LoraTo to{std::move(command), std::make_shared<LoraCallback>(std::move(done))};
  TROUPE_TRY(impl_->ask<Done>(impl_->peers->dispatcher, std::move(to)));
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

DeviceFacts Runtime::facts() const {
  const std::shared_lock lock(impl_->gate);
  if (impl_->closing) return {};
  auto facts = impl_->ask<DeviceFacts>(impl_->peers->router, Ask{});
  return facts ? facts.value() : DeviceFacts{};
}

RuntimeMetrics Runtime::metrics() const {
  RuntimeMetrics m;
  m.messages = impl_->counts->total();
  if (impl_->counts->recorder) {
    const trace::RecorderFigures recorded = impl_->counts->recorder->figures();
    m.trace_bytes = recorded.bytes;
    m.trace_lost = recorded.lost;
  }
  const std::shared_lock lock(impl_->gate);
  if (impl_->closing) return m;
  if (auto facts = impl_->ask<DeviceFacts>(impl_->peers->router, Ask{})) m.facts = facts.value();
  if (auto asked = impl_->ask<SchedulerFigures>(impl_->peers->scheduler, Ask{})) {
    const SchedulerFigures& f = asked.value();
    m.scheduler = f.stats;
    m.waiting = f.waiting;
    m.running = f.running;
    if (f.waiting + f.running != 0) m.since_last_settled = now_ns() - std::max(f.last_settled, f.busy_since);
  }
  return m;
}

bool Runtime::drain(std::chrono::nanoseconds limit) {
  const std::shared_lock lock(impl_->gate);
  if (impl_->closing) return false;
  return impl_->ask<Drained>(impl_->peers->dispatcher, Drain{}, std::max<std::chrono::nanoseconds>(limit, std::chrono::milliseconds{1}))
      .has_value();
}

Result<void> Runtime::dump_trace(const std::string& path) const {
  if (!impl_->counts->recorder) return Error{ErrorCode::bad_request, "the flight recorder is off (TraceOptions::flight_bytes is 0)"};
  return impl_->counts->recorder->dump(path);
}

Result<void> Runtime::stop() { return impl_->stop(); }

}  // namespace troupe
