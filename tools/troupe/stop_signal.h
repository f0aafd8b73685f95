// SIGTERM and SIGINT as something to wait for, for the commands that run until they are told to stop.
#pragma once

#include <csignal>

namespace troupe::tools {

// They wait for wait_for_signal() instead of ending the program; so in every thread that starts later.
sigset_t hold_signals();
// Afterwards a second one ends the program at once.
void wait_for_signal(const sigset_t& set);

}  // namespace troupe::tools
