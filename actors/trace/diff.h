// Two recordings of one workload, aligned by meaning and not by time: first what every client got (R1), then the protocol.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "actors/trace/reader.h"

namespace troupe::actors::trace {

struct Divergence {
  RequestId a, b;
  std::uint32_t token = 0;  // index in the output
  std::string what;         // a sentence
  std::string cause;        // what in B made it, where that can be told; may be empty
  std::size_t event_a = 0;  // where each side gave its token, or its end
  std::size_t event_b = 0;
};

struct DiffOutcome {
  std::optional<Divergence> divergence;  // the first, in the order of A
  std::uint64_t requests = 0;            // that were compared
  std::uint64_t tokens = 0;
  std::vector<std::string> protocol;  // how the runs differ otherwise, a line each
};

// A request that either side ended by a cancel, a deadline or an error compares as a prefix.
// Error: unsupported, a recording is redacted.
Result<DiffOutcome> diff(const Recording& a, const Recording& b);

}  // namespace troupe::actors::trace
