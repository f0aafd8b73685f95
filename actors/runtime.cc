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
#include "actors/replica/replica.h"
#include "actors/wire.h"
#include "actors/wire/ask.h"

namespace troupe {

using namespace actors;

namespace {

constexpr std::chrono::seconds kStopGrace{2};  // beyond step_timeout, for a stop that finds the device stuck

// Distinct for distinct x, and spread over all bits (splitmix64's finisher).
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

}  // namespace

struct Runtime::Impl {
  RuntimeOptions options;
  ModelInfo info;
  std::shared_ptr<Counts> counts = std::make_shared<Counts>();
  std::shared_ptr<DeliveryThread> delivery_thread = std::make_shared<DeliveryThread>();
  std::unique_ptr<ControlConfig> config;
  std::unique_ptr<caf::actor_system> system;
  DispatcherActor dispatcher;
  DeliveryActor delivery;
  std::unique_ptr<Replica> replica;
  std::uint64_t seed_base = 0;
  std::atomic<std::uint64_t> seeds{0};

  std::atomic<bool> closing{false};
  mutable std::shared_mutex gate;  // held shared by every call that asks an actor; alone while the system goes
  std::mutex stopping;
  std::optional<Result<void>> stopped;  // guarded by `stopping`

  Result<void> start();
  Result<void> stop();
  Result<void> give_back(Result<void> first);

  template <class R, class Handle, class M>
  Result<R> ask(const Handle& to, M message, std::optional<std::chrono::nanoseconds> limit = {}) const {
    return actors::ask<R>(*system, to, std::move(message), limit);
  }
};

Result<void> Runtime::Impl::start() {
  config = std::make_unique<ControlConfig>(ControlOptions{options.spin, options.pin_control_thread, 1});
  std::random_device entropy;
  seed_base = std::uint64_t{entropy()} << 32 | entropy();

  if (!options.trace.file.empty() || options.trace.flight_bytes != 0) {
    TROUPE_TRY(counts->recorder, trace::Recorder::start(options.trace, replica->configs()));
    config->idle_work[0] = {[](void* recorder) { return static_cast<trace::Recorder*>(recorder)->work(); }, counts->recorder};
  }
  system = start_system(*config);
  counts->home = &config->home(0);
  dispatcher = system->spawn<DispatcherShell>(counts, replica->configs().dispatcher, info);
  delivery = system->spawn<DeliveryShell, caf::detached>(counts, delivery_thread);
  TROUPE_TRY(replica->start({system.get(), counts, dispatcher, delivery}));
  replica->attach();
  caf::anon_send(dispatcher, Attach{replica->peers()});
  return success();
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
  if (dispatcher) {
    end(*system, dispatcher);
    replica->quiet(runtime_closed());
    (void)ask<Done>(delivery, EndAll{runtime_closed()});
    end(*system, delivery);
    result = replica->stop_device(std::chrono::steady_clock::now() + options.step_timeout + kStopGrace);
  }
  stopped = give_back(std::move(result));
  if (counts->recorder) {
    const Result<void> recorded = counts->recorder->stop();
    if (!recorded && *stopped) stopped = recorded;
  }
  return *stopped;
}

Result<void> Runtime::Impl::give_back(Result<void> first) {
  const std::unique_lock lock(gate);
  const bool stuck = !first && first.error().code == ErrorCode::device_failed;
  if (stuck) {
    // A thread of the driver is still at work on a step and will call into the stream actor when it is done: everything
    // that it can reach is left to it.
    (void)replica.release(), (void)system.release(), (void)config.release();
    return Error{ErrorCode::device_lost,
                 "the device was still busy when the time to stop was over; what it holds is abandoned (" + first.error().what + ")"};
  }
  if (replica) first = replica->give_back(std::move(first));
  replica.reset();
  dispatcher = DispatcherActor{};
  delivery = DeliveryActor{};
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
  Error wrong = check(options, model->info());
  impl->replica = std::make_unique<Replica>(options, std::move(driver), std::move(model));
  impl->info = impl->replica->info();
  std::unique_ptr<Runtime> runtime(new Runtime(std::move(impl)));  // gives driver and model back on every way out
  if (wrong.code != ErrorCode::none) return wrong;
  TROUPE_TRY(runtime->impl_->start());
  return runtime;
}

Submission Runtime::submit(Request request, RequestCallback callback) {
  const std::shared_lock lock(impl_->gate);
  if (impl_->closing) return Refusal{runtime_closed()};
  SubmitTo to;
  to.submit.request = Shared<Request>::of(std::move(request));
  to.submit.drawn_seed = mix(impl_->seed_base + impl_->seeds.fetch_add(1, std::memory_order_relaxed) * 0x9E3779B97F4A7C15ull);
  to.callback = std::make_shared<Callback>(std::move(callback));
  const auto reply = impl_->ask<SubmitReply>(impl_->dispatcher, std::move(to));
  if (!reply) return Refusal{reply.error()};
  const SubmitReply& answer = reply.value();
  if (answer.error.code != ErrorCode::none) return Refusal{answer.error, std::chrono::nanoseconds(answer.retry_after)};
  return answer.request;
}

CancelOutcome Runtime::cancel(std::uint64_t client) {
  const std::shared_lock lock(impl_->gate);
  if (impl_->closing) return CancelOutcome::not_found;
  const auto reply = impl_->ask<CancelReply>(impl_->dispatcher, Cancel{{}, client});
  return reply ? reply.value().outcome : CancelOutcome::not_found;
}

Result<void> Runtime::lora(LoraCommand command, LoraCallback done) {
  const std::shared_lock lock(impl_->gate);
  if (impl_->closing) return runtime_closed();
  LoraTo to{std::move(command), std::make_shared<LoraCallback>(std::move(done))};
  TROUPE_TRY(impl_->ask<Done>(impl_->dispatcher, std::move(to)));
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
  auto facts = impl_->ask<DeviceFacts>(impl_->replica->peers()->router, Ask{});
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
  if (auto facts = impl_->ask<DeviceFacts>(impl_->replica->peers()->router, Ask{})) m.facts = facts.value();
  if (auto asked = impl_->ask<SchedulerFigures>(impl_->replica->peers()->scheduler, Ask{})) {
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
  return impl_->ask<Drained>(impl_->dispatcher, Drain{}, std::max<std::chrono::nanoseconds>(limit, std::chrono::milliseconds{1}))
      .has_value();
}

Result<void> Runtime::dump_trace(const std::string& path) const {
  if (!impl_->counts->recorder) return Error{ErrorCode::bad_request, "the flight recorder is off (TraceOptions::flight_bytes is 0)"};
  return impl_->counts->recorder->dump(path);
}

Result<void> Runtime::stop() { return impl_->stop(); }

}  // namespace troupe
