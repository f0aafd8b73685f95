// The life of one request, and figures of a whole recording, as text.
#pragma once

#include <string>

#include "actors/trace/reader.h"

namespace troupe::tools {

// Waited, opened, chunks of its prompt, steps, over-runs, rollbacks, preemptions, its end. `id`: "7" or "7#2". Empty:
// the recording has no such request.
std::string story(const actors::trace::Recording& r, const std::string& id);

// Per step: host loop, device busy, run-ahead, over-runs, rollbacks; mailboxes; requests. Percentiles where they say more.
std::string stats(const actors::trace::Recording& r);

}  // namespace troupe::tools
