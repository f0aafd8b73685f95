// One simulated life of a runtime, made from a seed: sizes, requests, what clients do and when, and what fails. The same
// seed is the same life. It runs twice: undisturbed (depth 1, no faults, room for all), which says what every stream has
// to be, and as the seed has it, checked after every message.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/sim/coverage.h"
#include "tests/sim/replica_counts.h"
#include "tests/sim/world.h"

namespace troupe::sim {

struct ClientEvent {
  enum class Kind : std::uint8_t { submit, cancel, drain, lora, strike, drain_replica, undrain_replica };
  Kind kind = Kind::submit;
  std::uint32_t after = 0;    // turns of the world since the event before
  std::uint32_t request = 0;  // submit: index in Scenario::requests
  std::uint64_t client = 0;   // cancel
  LoraCommand command{};      // lora
  std::uint32_t replica = 0;  // strike, drain_replica, undrain_replica
  World::Blow blow = World::Blow::kill;
};

struct Scenario {
  WorldOptions world;
  std::vector<Request> requests;
  std::vector<ClientEvent> events;
};

struct Outcome {
  std::string violation;                 // empty: none
  std::uint64_t messages = 0;            // of the life that the seed has
  std::uint64_t reference_messages = 0;  // of the undisturbed one
  Coverage coverage;
  actors::LoraStats lora;
  ReplicaCounts replicas{};
  std::vector<std::string> log;         // of the messages, if asked for
  std::vector<std::uint8_t> recording;  // the bytes of a recording's file, if WorldOptions::record
};

struct Faults {
  actors::SchedulerFault scheduler = actors::SchedulerFault::none;
  actors::RouterFault router = actors::RouterFault::none;
  actors::SpillFault spill = actors::SpillFault::none;
  actors::LoraFault lora = actors::LoraFault::none;
  actors::DispatcherFault dispatcher = actors::DispatcherFault::none;
  actors::DeliveryFault delivery = actors::DeliveryFault::none;
  bool append_history = false;  // SimDeviceOptions
};

Scenario make_scenario(std::uint64_t seed);
// The same with LoRA adapters: requests that name some, and commands between them. What a stream has to be follows from
// the generation that the request is bound to.
Scenario make_lora_scenario(std::uint64_t seed);
// The same of a model with recurrent layers, whose versions of state are now and then too few for all requests.
Scenario make_hybrid_scenario(std::uint64_t seed, bool lora = false);
Scenario as_hybrid(Scenario scenario);
// Several replicas (replica_scenario.cc): they are killed, frozen, cut off and slowed down, drained and put back; their devices
// fail, and some do not start again. With adapters: commands roll over them.
// `replicas` 0: as many as the seed has.
Scenario make_replica_scenario(std::uint64_t seed, bool lora = false, std::uint32_t replicas = 0);
// Runs its first `events` client events (0: all).
Outcome run_scenario(const Scenario& scenario, const Faults& faults = {}, std::size_t events = 0, bool keep_log = false);
// Runs it once more, recorded; where the recording is, and the command to look at it.
std::string leave_recording(const Scenario& scenario, const Faults& faults = {}, std::size_t events = 0);
// The fewest first events that still break a rule.
std::size_t shrink(const Scenario& scenario, const Faults& faults = {});

}  // namespace troupe::sim
