// What /replicas of a server says, as a table for a person.
//
// Values; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "messages/error.h"

namespace troupe::tools {

struct ReplicaRow {
  std::string name, state, error;
  std::uint64_t life = 0;  // how often it was started
  std::uint64_t running = 0, waiting = 0, outstanding = 0;
  std::uint64_t used_blocks = 0, total_blocks = 0;
  std::uint64_t steps = 0, steps_ahead = 0, tokens = 0;  // since its last start
  std::vector<std::string> adapters;
};

struct ReplicaSample {
  std::string model;
  std::uint64_t running = 0, waiting = 0, unplaced = 0;
  std::uint64_t tokens = 0;  // of all, over all lives
  std::vector<ReplicaRow> replicas;
};

// io_failed: it is no answer of /replicas.
Result<ReplicaSample> parse_replicas(std::string_view body);

// Lines without their ends, each at most `width` characters. `before`: the sample `seconds` earlier, for what is counted per
// second and for the share of steps ahead; null: of the whole life, and nothing per second.
std::vector<std::string> replica_table(const ReplicaSample& now, const ReplicaSample* before, double seconds, std::size_t width);

}  // namespace troupe::tools
