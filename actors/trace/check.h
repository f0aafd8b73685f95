// The rules over a recording: which message is the first that breaks one.
//
// R2 (a token comes from a row that holds, is none that was barred, and none comes after the end), R3, R4, R6 (by the
// Witness), R5 (each token and the end, once), R7 (who may fail), R8 (the blocks add up, and come back at teardown), R9 (what
// a step names stays in the adapter table, no generation comes twice, and what comes after a command waits for its outcome), R10 (no launch
// is refused in a loop), R11 (mailboxes stay short). R1 takes two recordings: see diff.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "actors/trace/reader.h"

namespace troupe::actors::trace {

struct Finding {
  std::string rule;       // "R3"
  std::string what;       // a sentence
  std::size_t event = 0;  // in Recording::events
};

struct CheckOutcome {
  std::optional<Finding> finding;
  std::uint64_t messages = 0;  // that were checked
  std::uint64_t requests = 0;
  std::uint64_t tokens = 0;
  std::string note;  // what could not be checked, and why
};

// Error: unsupported, the recording does not say what this build's cores were made with.
Result<CheckOutcome> check(const Recording& recording);

// Whether the sizes in a recording's header are those of a runtime: nothing is made by them before.
bool plausible(const CoreConfigs& configs);

}  // namespace troupe::actors::trace
