// One life of one replica: its cores, its simulated device, and the second set of books about it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "actors/device/core.h"
#include "actors/lora/core.h"
#include "actors/router/core.h"
#include "actors/sampler/core.h"
#include "actors/scheduler/core.h"
#include "actors/spill/core.h"
#include "actors/trace/witness.h"
#include "tests/sim/sim_device.h"
#include "tests/sim/sim_files.h"

namespace troupe::sim {

// Who takes part. The first three are the front and there once, the others belong to a Part.
enum class Actor : std::uint8_t {
  edge,
  dispatcher,
  delivery,
  scheduler,
  router,
  stream,
  device,
  sampler,
  spill,
  lora,
  loader,
  copy_stream,
  prefill_stream,
  count
};
inline constexpr std::size_t kActors = static_cast<std::size_t>(Actor::count);

struct PartConfig {
  std::uint32_t ring_slots = 0;
  TimeNs step_timeout = 0;
  SimDeviceOptions device;
  SimFilesOptions files;
  actors::SchedulerConfig scheduler;
  actors::RouterConfig router;
  actors::LoraConfig lora;
  actors::SpillConfig spill;
};

struct Part {
  Part(const PartConfig& c, const ModelInfo& model)
      : ref(c.scheduler.replica),
        device(c.device, c.ring_slots),
        witness(model, c.ring_slots),
        scheduler(c.scheduler, model),
        router(c.router, model),
        device_core(c.ring_slots, c.step_timeout, c.device.spill_places, c.device.prefill_stream ? c.ring_slots / 2 : 0),
        sampler(c.device.vocab),
        files(std::make_shared<SimFiles>(c.files)),
        spill(c.spill, model, files),
        lora(c.lora, model) {}

  const ReplicaRef ref;
  bool dead = false;       // nothing of it takes up a message any more; what it sent is under way
  bool frozen = false;     // it takes none up, and nobody is told
  std::uint32_t slow = 1;  // its device gets on about once in so many turns
  SimDevice device;
  actors::trace::Witness witness;
  actors::SchedulerCore scheduler;
  actors::RouterCore router;
  actors::DeviceCore device_core;
  actors::SamplerCore sampler;
  std::shared_ptr<SimFiles> files;
  actors::SpillCore spill;
  actors::LoraCore lora;
  actors::SchedulerOutbox scheduler_out;
  actors::RouterOutbox router_out;
  actors::DeviceOutbox device_out;
  actors::SamplerOutbox sampler_out;
  actors::SpillOutbox spill_out;
  actors::LoraOutbox lora_out;
  std::optional<TimeNs> timers[kActors];
  std::map<AdapterRef, std::string> loaded;  // which file a generation holds
  std::map<std::uint64_t, bool> answered;    // LoRA commands, and whether they were done
  bool unsafe = false;                       // a copy may write blocks at any time, beside the steps: the device is of no more use
  std::uint32_t refusals = 0;                // launches refused since anything else happened
};

}  // namespace troupe::sim
