// Counts heap allocations of the whole process: linking this replaces operator new. By who calls it: CAF's library, or
// anything else (our code, with the CAF templates that are compiled into it).
#pragma once

#include <cstdint>

namespace troupe::tools {

struct AllocCount {
  std::uint64_t ours = 0;
  std::uint64_t caf = 0;
};

// Since the process began; any thread.
AllocCount alloc_count();

}  // namespace troupe::tools
