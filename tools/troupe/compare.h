// Whether two passes over one workload gave the same streams (R1), byte for byte.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "tools/troupe/outcome.h"

namespace troupe::tools {

struct Divergence {
  std::string id;         // of the first request, in the workload's order, whose streams differ
  std::size_t token = 0;  // the first output position that differs
};

// The outcomes in the workload's order, both of the same requests. Ids, text, log-probabilities, the reason of the end
// and the code of an error must be equal; where either pass ended a request by a cancel or a deadline, one stream must
// be a prefix of the other.
std::optional<Divergence> first_divergence(const std::vector<RequestOutcome>& a, const std::vector<RequestOutcome>& b);

}  // namespace troupe::tools
