// What an embedder says about recording.
#pragma once

#include <cstddef>
#include <string>

namespace troupe {

struct TraceOptions {
  std::string file;     // every message goes there, for `troupe trace`; empty = no file
  bool redact = false;  // without prompts, token ids and texts: their lengths stay, and hashes of lists of ids
  // The flight recorder keeps the last messages in memory, at most so many bytes (of several replicas in all); 0 = off. Runtime::dump_trace
  // writes it out; a lost device and a broken invariant do by themselves, once, into `flight_dir` (empty = the system's folder for
  // temporary files), and say so on stderr.
  std::size_t flight_bytes = std::size_t{64} << 20;
  std::string flight_dir;
};

}  // namespace troupe
