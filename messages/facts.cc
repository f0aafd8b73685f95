#include "messages/facts.h"

#include <fmt/format.h>

namespace troupe {

std::string label(const DeviceFacts& x) {
  return fmt::format("facts{{free={}/{}, fenced={}, in_flight={}}}", x.free_blocks, x.total_blocks, x.fenced_blocks, x.in_flight);
}

}  // namespace troupe
