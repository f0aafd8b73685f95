#include "messages/ids.h"

#include <fmt/format.h>

namespace troupe {

std::string label(const RequestId& x) { return fmt::format("{}#{}", x.client, x.generation); }
std::string label(const Ticket& x) { return fmt::format("t{}.{}", x.incarnation, x.step); }
std::string label(const SeqId& x) { return fmt::format("s{}.{}", x.incarnation, x.number); }
std::string label(const AdapterRef& x) { return fmt::format("a{}g{}", x.slot, x.generation); }
std::string label(const ReplicaRef& x) { return fmt::format("r{}.{}", x.index, x.incarnation); }

}  // namespace troupe
