// A recording as one page that needs no network: a timeline of the actors, the messages as a sequence diagram, a filter,
// and a click for a message in full with its causes.
#pragma once

#include <cstddef>
#include <string>

#include "actors/trace/reader.h"

namespace troupe::tools {

// At most `most` messages, the last ones: a browser holds no more with comfort.
std::string html(const actors::trace::Recording& r, std::size_t most = 20'000);

}  // namespace troupe::tools
