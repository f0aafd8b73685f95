#include "tests/sim/workload.h"

#include <random>

namespace troupe::sim {

Request greedy_request(std::uint64_t client, std::uint32_t prompt, std::uint32_t max_tokens) {
  Request q;
  q.client = client;
  for (std::uint32_t i = 0; i < prompt; ++i) q.prompt.push_back((i * 7 + static_cast<Token>(client)) % 64);
  q.stop.max_tokens = max_tokens;
  q.stop.ignore_eos = true;
  return q;
}

std::vector<Request> make_workload(const WorkloadOptions& o, const SimDeviceOptions& device) {
  std::mt19937_64 random(o.seed * 7919 + 17);
  const auto below = [&](std::uint64_t n) { return static_cast<std::uint32_t>(random() % n); };
  std::vector<Request> all;
  for (std::uint32_t i = 0; i < o.requests; ++i) {
    Request q;
    q.client = i + 1;
    const std::uint32_t prompt = 1 + below(o.max_prompt);
    for (std::uint32_t k = 0; k < prompt; ++k) q.prompt.push_back(below(device.vocab));
    q.stop.max_tokens = 1 + below(o.max_tokens);
    if (o.sampled && below(4) == 0) {
      q.sampling.temperature = 0.8f;
      q.sampling.top_k = below(10);
      q.sampling.top_p = below(2) == 0 ? 0.9f : 1.0f;
      q.sampling.seed = random();
      if (below(2) == 0) q.sampling.repetition_penalty = 1.2f;
      if (below(3) == 0) q.sampling.frequency_penalty = 0.3f;
      if (below(3) == 0) q.sampling.logprobs = below(3);
    }
    if (o.think && below(3) == 0) q.think = Think{2 + below(6), 2 + below(6), 2 + below(6)};
    if (o.stops) {
      q.stop.ignore_eos = below(4) == 0;
      if (below(3) == 0) q.stop.stop_token_ids = {below(device.vocab), below(device.vocab)};
      if (below(4) == 0) q.stop.min_tokens = below(q.stop.max_tokens + 1);
      if (below(4) == 0) q.stop.stop = {std::string(1, static_cast<char>('a' + below(26))) + static_cast<char>('a' + below(26)), "qq"};
    }
    all.push_back(std::move(q));
  }
  return all;
}

}  // namespace troupe::sim
