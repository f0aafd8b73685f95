// Random requests for the simulator, the same for the same seed.
#pragma once

#include <cstdint>
#include <vector>

#include "messages/request.h"
#include "tests/sim/sim_device.h"

namespace troupe::sim {

struct WorkloadOptions {
  std::uint64_t seed = 1;
  std::uint32_t requests = 12;
  std::uint32_t max_prompt = 30;
  std::uint32_t max_tokens = 24;
  bool sampled = true;  // a quarter of the requests
  bool think = true;    // some
  bool stops = true;    // stop strings and stop ids, min_tokens
};

// `prompt` ids that depend on the client, greedy, exactly `max_tokens` tokens.
Request greedy_request(std::uint64_t client, std::uint32_t prompt, std::uint32_t max_tokens);

// Clients 1 … requests.
std::vector<Request> make_workload(const WorkloadOptions& options, const SimDeviceOptions& device);

}  // namespace troupe::sim
