// What the scenarios' tests share: a world whose requests have a known stream, and options and requests as most of them take.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "tests/sim/workload.h"
#include "tests/sim/world.h"

namespace troupe::sim {

// Adds requests whose undisturbed streams are known from the oracle, and runs to a whole end.
class Life {
 public:
  explicit Life(const WorldOptions& o) : options_(o), world(o) {}
  void post(Request q) {
    Stream s;
    s.tokens = expected_tokens(q, sim_model(options_.device), options_.device);
    s.finish.emplace();
    const bool stopped = std::count(q.stop.stop_token_ids.begin(), q.stop.stop_token_ids.end(), s.tokens.back()) > 0;
    s.finish->reason = stopped ? FinishReason::stop : FinishReason::length;
    const ModelInfo model = sim_model(options_.device);
    for (const Token id : s.tokens) s.text += model.tokens->text(id);
    expected_.push_back(std::make_unique<Stream>(std::move(s)));
    world.post(std::move(q), expected_.back().get());
  }
  void steps(std::uint32_t n) {
    for (; n > 0 && world.violation().empty(); --n) world.step();
  }
  void finish() {
    world.run(100'000);
    if (world.violation().empty()) world.finish();
    ASSERT_EQ(world.violation(), "");
  }

 private:
  const WorldOptions options_;
  std::vector<std::unique_ptr<Stream>> expected_;

 public:
  World world;
};

inline WorldOptions options(std::uint64_t seed, std::uint32_t depth) {
  WorldOptions o;
  o.seed = seed;
  o.depth = depth;
  return o;
}

inline Request stopping(std::uint64_t client, std::uint32_t prompt, std::uint32_t max_tokens) {
  Request q = greedy_request(client, prompt, max_tokens);
  q.stop.stop_token_ids = {3, 7, 11, 15, 19, 23, 27, 31};  // one token in eight: most end while others are in flight
  return q;
}

}  // namespace troupe::sim
