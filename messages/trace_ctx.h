// Where a message stands in the causal order of a run (DESIGN §7). Every mailbox message carries one.
#pragma once

#include <cstdint>

namespace troupe {

// `seq` is given by the sender's shell when it sends (unique in a runtime, increasing per actor); `cause` is
// the seq of the message whose handling sent this one. 0 = not sent by an actor (an edge of the runtime).
struct TraceCtx {
  std::uint64_t seq = 0;
  std::uint64_t cause = 0;
};

template <class Inspector>
auto inspect(Inspector& f, TraceCtx& x) {
  return f(x.seq, x.cause);
}

}  // namespace troupe
