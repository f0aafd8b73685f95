// SIGUSR1 writes the flight recorder of a running program out, and says where on stderr.
#pragma once

#include <memory>

#include "actors/runtime.h"

namespace troupe::tools {

class DumpOnSignal {
 public:
  // Keeps the signal from ending the program. Before the first thread is made, so that all have it blocked.
  static void block();

  explicit DumpOnSignal(const Runtime& runtime);  // which outlives it
  ~DumpOnSignal();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe::tools
