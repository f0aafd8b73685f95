// Runs the cores again on what a recording says they took up, and compares what they want sent with what was sent: of
// dispatcher, scheduler, router, device, LoRA controller, sampler and spill actor. Stream, delivery and loader have no core. Logits and
// saved states are not recorded (stand_ins.h): of the sampler everything is compared but the choice among its logits, of the
// spill core all but what it found in a file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "actors/trace/reader.h"

namespace troupe::actors::trace {

struct ReplayOptions {
  std::uint64_t until = 0;  // stop once this message has been handled; 0 = at the end
};

struct ReplayDifference {
  std::size_t event = 0;  // the receipt whose handling differs, in Recording::events
  std::string what;
};

struct ReplayOutcome {
  std::optional<ReplayDifference> difference;  // the first
  std::uint64_t handled = 0;                   // messages that cores took up
  std::uint64_t compared = 0;                  // messages that they sent, each as the recording has it
  std::uint64_t recorded = 0;                  // messages that the recording says these cores sent
  std::string note;                            // why it ended before the recording does
  std::string state;                           // of all cores where it ended, as JSON
};

// The recording is trusted to be one of a runtime: the cores do not defend themselves against one that is made up.
// Errors: unsupported, it cannot be replayed (redacted, of another build, or begun in the middle).
Result<ReplayOutcome> replay(const Recording& recording, const ReplayOptions& options = {});

}  // namespace troupe::actors::trace
