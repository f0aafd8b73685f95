// A recording as Chrome's trace-event JSON, which ui.perfetto.dev and chrome://tracing read: a track for every actor with
// a slice for every message that it handled, a track for the device's stream with a slice for every step, arrows from
// where a message was sent to where it was taken up, and counters.
#pragma once

#include <string>

#include "actors/trace/reader.h"

namespace troupe::tools {

std::string perfetto(const actors::trace::Recording& r);

}  // namespace troupe::tools
