#include "messages/sample.h"

#include <fmt/format.h>

namespace troupe {

std::string label(const SampleBatch& x) { return fmt::format("Sample{{{}, n={}}}", label(x.ticket), x.rows.size()); }
std::string label(const SampledBatch& x) { return fmt::format("Sampled{{{}, n={}}}", label(x.ticket), x.rows.size()); }

}  // namespace troupe
