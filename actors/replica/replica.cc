#include "actors/replica/replica.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "actors/device/actor.h"
#include "actors/lora/actor.h"
#include "actors/router/actor.h"
#include "actors/sampler/actor.h"
#include "actors/scheduler/actor.h"
#include "actors/spill/actor.h"
#include "actors/spill/posix_files.h"
#include "actors/stream/actor.h"
#include "actors/stream/copy_actor.h"
#include "actors/stream/prefill_actor.h"
#include "actors/wire/ask.h"

namespace troupe::actors {
namespace {

constexpr std::chrono::milliseconds kStopPoll{5};
constexpr std::uint32_t kSpillPlaces = 2;   // saves and restores at a time
constexpr std::uint32_t kSpillBlocks = 16;  // that each has page-locked memory for

std::string figures(const device::DriverUsage& u) {
  return std::to_string(u.streams) + " streams, " + std::to_string(u.events) + " events, " + std::to_string(u.graphs) + " graphs, " +
         std::to_string(u.pinned_bytes) + " page-locked bytes, " + std::to_string(u.device_bytes) + " bytes on the device";
}

trace::CoreConfigs make_configs(const RuntimeOptions& o, const ReplicaRef& ref, bool movable, const ModelInfo& info,
                                const CopyPlaces& places, bool prefill_stream) {
  trace::CoreConfigs c;
  const std::uint32_t depth = std::min(o.depth, std::max(info.max_depth, 1u));
  c.dispatcher.max_live = o.max_live;
  c.router.incarnation = ref.incarnation;
  c.router.depth = depth;
  c.router.fault = o.router_fault;
  c.scheduler.router_incarnation = c.router.incarnation;
  c.scheduler.depth = depth;
  c.scheduler.max_batch = o.max_batch;
  c.scheduler.step_tokens = o.step_tokens;
  c.scheduler.spill_places = places.count;
  c.scheduler.spill_min_blocks = o.spill_min_blocks;
  c.scheduler.fault = o.fault;
  const std::uint32_t slots = depth + 1;  // of a stream
  c.scheduler.prefill_stream = prefill_stream;
  c.device = {prefill_stream ? 2 * slots : slots, o.step_timeout.count(), places.count, prefill_stream ? slots : 0};
  c.scheduler.replica = ref;
  c.scheduler.movable = movable;
  c.lora = o.lora;
  c.lora.replica = ref;
  c.lora.movable = movable;
  c.spill.limit_bytes = o.spill_limit;
  c.model = info;
  return c;
}

}  // namespace

Error check(const RuntimeOptions& o, const ModelInfo& m) {
  const auto bad = [](std::string what) { return Error{ErrorCode::bad_request, std::move(what)}; };
  if (o.depth == 0 || o.depth > 8) return bad("depth is " + std::to_string(o.depth) + "; it must be 1 (every step settles first) to 8");
  if (o.max_batch == 0) return bad("max_batch is 0; at least one request must be able to run");
  if (o.max_live == 0) return bad("max_live is 0; at least one request must be let in");
  if (o.streams == 0 || o.streams > 3) {
    return bad("streams is " + std::to_string(o.streams) + "; it must be 1 for all, 2 with one for copies, or 3 with one for prefill too");
  }
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

Replica::Replica(const RuntimeOptions& options, ReplicaRef ref, bool movable, std::unique_ptr<device::Driver> driver,
                 std::unique_ptr<device::ModelDeviceFeed> model)
    : options_(options), ref_(ref), info_(model->info()), driver_(std::move(driver)), model_(std::move(model)) {
  if (options.kv_blocks != 0) info_.kv_blocks = std::min(info_.kv_blocks, options.kv_blocks);
  if (!model_->supports_device_token_feed()) info_.max_depth = 1;
  places_ = {options.spill_dir.empty() ? 0 : kSpillPlaces, std::min(kSpillBlocks, info_.kv_blocks), model_->kv_block_bytes(),
             std::min(options.streams, info_.streams) > 1};
  if (places_.block_bytes != 0)
    places_.state_parts = static_cast<std::uint32_t>((model_->ssm_state_bytes() + places_.block_bytes - 1) / places_.block_bytes);
  const bool prefill_stream = std::min(options.streams, info_.streams) > 2 && model_->prefill_feed() != nullptr;
  configs_ = make_configs(options, ref_, movable, info_, places_, prefill_stream);
}

// The model's memory is the driver's.
Replica::~Replica() {
  if (driver_) (void)driver_->bind_thread();
  model_.reset();
}

Result<void> Replica::start(const ReplicaSite& site) {
  site_ = site;
  if (places_.count != 0) {
    if (model_->kv_block_bytes() == 0) return Error{ErrorCode::unsupported, "this model cannot copy its KV blocks: leave spill_dir empty"};
    if (info_.has_ssm_layers && places_.state_parts == 0)
      return Error{ErrorCode::unsupported, "this model cannot copy its recurrent state: leave spill_dir empty"};
    TROUPE_TRY(spilled_, PosixStateFiles::open(options_.spill_dir));
  }
  const DeviceSetup setup{driver_.get(),
                          {model_->cells_bytes(), model_->upload_bytes()},
                          configs_.device.ring_slots,
                          configs_.device.step_timeout,
                          places_,
                          configs_.device.prefill_slots};
  device_ = site_.system->spawn<DeviceShell>(site_.counts, setup, info_);
  auto started = ask<DeviceStarted>(*site_.system, device_, StartDevice{});
  if (started && started.value().error.code != ErrorCode::none) started = started.value().error;
  if (!started) {
    end(*site_.system, std::exchange(device_, {}));
    return started.error();
  }
  started_ = std::move(started.value());
  return success();
}

void Replica::attach() {
  caf::actor_system& system = *site_.system;
  const std::shared_ptr<Counts>& counts = site_.counts;
  Peers p;
  p.dispatcher = site_.dispatcher;
  p.delivery = site_.delivery;
  p.device = std::exchange(device_, {});
  p.sampler = system.spawn<SamplerShell, caf::detached>(counts, info_.vocab_size);
  const std::uint32_t ring = configs_.device.ring_slots, aside = configs_.device.prefill_slots;
  const StreamSetup stream{driver_.get(), model_.get(), ring, places_.count, aside};
  if (driver_->runs_kernels()) {
    p.stream = system.spawn<StreamShell, caf::detached>(counts, stream);  // launching a step's kernels takes its time
    if (aside != 0)
      p.prefill_stream = system.spawn<PrefillStreamShell, caf::detached>(counts, driver_.get(), model_->prefill_feed(), ring, aside);
  } else {
    p.stream = system.spawn<StreamShell>(counts, stream);
    if (aside != 0) p.prefill_stream = system.spawn<PrefillStreamShell>(counts, driver_.get(), model_->prefill_feed(), ring, aside);
  }
  if (started_.copy_stream != 0) {
    p.copy_stream =
        system.spawn<CopyStreamShell, caf::detached>(counts, driver_.get(), model_.get(), configs_.device.ring_slots, places_.count);
  }
  if (spilled_) p.spill = system.spawn<SpillShell, caf::detached>(counts, configs_.spill, info_, spilled_);
  p.router = system.spawn<RouterShell>(counts, configs_.router, info_);
  p.scheduler = system.spawn<SchedulerShell>(counts, configs_.scheduler, info_);
  if (info_.max_loras > 0) {
    p.lora = system.spawn<LoraShell>(counts, configs_.lora, info_);
    p.loader = system.spawn<LoaderShell, caf::detached>(counts, model_.get());
  }
  peers_ = std::make_shared<const Peers>(std::move(p));

  const Attach everyone{peers_};
  caf::anon_send(peers_->sampler, everyone);
  if (peers_->spill) caf::anon_send(peers_->spill, everyone);
  caf::anon_send(peers_->stream, everyone);
  caf::anon_send(peers_->stream, AttachStream{started_.stream, started_.cells});
  if (peers_->prefill_stream) {
    caf::anon_send(peers_->prefill_stream, everyone);
    caf::anon_send(peers_->prefill_stream, AttachStream{started_.prefill_stream, started_.cells});
  }
  if (peers_->copy_stream) {
    caf::anon_send(peers_->copy_stream, everyone);
    caf::anon_send(peers_->copy_stream, AttachStream{started_.copy_stream, {}});
  }
  caf::anon_send(peers_->router, everyone);
  caf::anon_send(peers_->scheduler, everyone);
  if (peers_->lora) {
    caf::anon_send(peers_->lora, everyone);
    caf::anon_send(peers_->loader, everyone);
  }
  (void)ask<Done>(system, peers_->device, everyone);  // RingReady is on its way before the first request
}

void Replica::quiet(const Error& why) {
  if (!peers_) return;
  caf::actor_system& system = *site_.system;
  if (peers_->lora) {
    end(system, peers_->lora);
    end(system, peers_->loader);
  }
  caf::anon_send(peers_->scheduler, Halt{{}, why});
  end(system, peers_->scheduler);
  end(system, peers_->sampler);
}

Result<void> Replica::stop_device(std::chrono::steady_clock::time_point until) {
  if (!peers_) return success();
  caf::actor_system& system = *site_.system;
  const auto left = std::max<std::chrono::nanoseconds>(until - std::chrono::steady_clock::now(), kStopPoll);
  Result<void> result = success();
  if (torn_down_) {
    // An earlier call got so far.
  } else if (const auto torn = ask<TornDown>(system, peers_->router, Teardown{}, left)) {
    torn_down_ = true;
    const DeviceFacts& f = torn.value().facts;
    if (f.free_blocks + f.cached_blocks != f.total_blocks || f.free_slots != f.total_slots || f.ssm_used != 0) {
      result = Error{ErrorCode::internal, "the router's pools were not whole at teardown (" + label(f) + "); please report this"};
    }
    end(system, peers_->router);
    if (peers_->spill) end(system, peers_->spill);  // nothing uses the places' memory any more
    (void)ask<Done>(system, peers_->stream, StopDevice{});
    if (peers_->prefill_stream) (void)ask<Done>(system, peers_->prefill_stream, StopDevice{});
  } else if (peers_->spill) {
    // A file may still be written from memory of the device's: it is left to whoever does.
    return Error{ErrorCode::device_failed, "the router did not settle its steps and copies in time"};
  }
  // A step that failed half-way may still have work on the stream.
  Result<void> gone = success();
  do {
    auto done = ask<Done>(system, peers_->device, StopDevice{});
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
  if (!torn_down_) return Error{ErrorCode::internal, "the router did not settle its steps in time"};
  return result;
}

Result<void> Replica::give_back(Result<void> first) {
  if (peers_) {
    end(*site_.system, peers_->router);
    end(*site_.system, peers_->stream);
    if (peers_->prefill_stream) end(*site_.system, peers_->prefill_stream);
    if (peers_->copy_stream) end(*site_.system, peers_->copy_stream);
    end(*site_.system, peers_->device);
  }
  spilled_.reset();
  if (driver_) {
    (void)driver_->bind_thread();  // whoever stops the replica frees the model's memory
    model_.reset();
    const device::DriverUsage usage = driver_->usage();
    const bool whole = usage.streams == 0 && usage.events == 0 && usage.pinned_bytes == 0 && usage.device_bytes == 0 && usage.graphs == 0;
    if (!whole && !first) {
      first = Error{first.error().code, first.error().what + "; abandoned: " + figures(usage)};
    } else if (!whole && usage.abandoned != 0) {
      first = Error{ErrorCode::device_lost, "the device was lost while it was given back what it had lent; abandoned: " + figures(usage)};
    } else if (!whole) {
      first = Error{ErrorCode::internal, "not given back to the driver: " + figures(usage) + "; please report this"};
    }
    driver_.reset();  // joins the streams' threads, which may still be in a call of the stream actor's
  }
  peers_.reset();
  return first;
}

}  // namespace troupe::actors
