// One replica: a driver, a model on it, and the actors that run requests on the two: scheduler, router, sampler, stream and
// device, and where they are asked for LoRA controller, loader and spill. Its control-thread actors share one home.
//
// Life: made with driver and model, start(), attach(), then quiet(), stop_device(), give_back() in that order, each
// also after a start() that failed. They wait for actors: never on a control thread, and by one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "actors/device/ring.h"
#include "actors/runtime.h"
#include "actors/spill/state_files.h"
#include "actors/trace/format.h"
#include "actors/wire.h"
#include "device/model.h"

namespace troupe::actors {

// The first setting that is absurd, or that the model cannot do; code none = fine.
Error check(const RuntimeOptions& options, const ModelInfo& model);

// What a replica gets from its runtime.
struct ReplicaSite {
  caf::actor_system* system = nullptr;  // outlives it
  std::shared_ptr<Counts> counts;       // with its home and, if messages are recorded, the recorder
  FrontDoor dispatcher;
  DeliveryDoor delivery;
};

class Replica {
 public:
  // The model's info as this runtime uses it: no more KV blocks than asked for, no depth without device feed.
  // `movable`: requests that it cannot finish go on elsewhere.
  Replica(const RuntimeOptions& options, ReplicaRef ref, bool movable, std::unique_ptr<device::Driver> driver,
          std::unique_ptr<device::ModelDeviceFeed> model);
  ~Replica();
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  const ReplicaRef& ref() const { return ref_; }
  const ModelInfo& info() const { return info_; }
  // What its cores are made with: for the recorder, before start().
  const trace::CoreConfigs& configs() const { return configs_; }

  // Makes the device's stream and ring. Errors: what the driver says; unsupported, io_failed: spilling does not work.
  Result<void> start(const ReplicaSite& site);
  // Spawns the other actors and tells all of them who the others are; steps can run when it returns.
  void attach();
  caf::actor_system* system() const { return site_.system; }
  // Null before attach().
  const std::shared_ptr<const Peers>& peers() const { return peers_; }

  // Ends every request with this error (the terminal events are on their way to delivery), and every actor that makes work.
  void quiet(const Error& why);
  // Settles what is in flight, tears the router down and gives back what steps used of the device, until then at most.
  // device_failed: the device is still busy, and what it can reach must be left to it: this object and the system, for ever,
  // or until a later call says otherwise.
  Result<void> stop_device(std::chrono::steady_clock::time_point until);
  // Ends the rest and frees model and driver; not after a stop_device that answered device_failed. `first`: what stop_device
  // said. Errors: that, or what was not given back.
  Result<void> give_back(Result<void> first);

 private:
  const RuntimeOptions options_;
  const ReplicaRef ref_;
  ModelInfo info_;
  std::unique_ptr<device::Driver> driver_;
  std::unique_ptr<device::ModelDeviceFeed> model_;
  CopyPlaces places_{};
  trace::CoreConfigs configs_;
  ReplicaSite site_;
  std::shared_ptr<StateFiles> spilled_;  // none: nothing is spilled
  DeviceActor device_;                   // until attach()
  DeviceStarted started_;
  std::shared_ptr<const Peers> peers_;
  bool torn_down_ = false;  // the router is gone
};

}  // namespace troupe::actors
