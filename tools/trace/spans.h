// When who was busy, from a recording: actors with messages, the device's stream with steps and copies. Spans of one track
// are in order, none is empty, and none overlaps another.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "actors/trace/reader.h"

namespace troupe::tools {

struct Span {  // [begin, end)
  TimeNs begin = 0;
  TimeNs end = 0;
};

// What an actor does for one message: from taking it up to the last that it sends for it.
struct HandledSpan : Span {
  actors::Party who;
  std::size_t receipt = 0;  // in Recording::events
};

// A step or a copy runs from when the stream has it and what was before it is done, to its event.
struct DeviceSpan : Span {
  std::string name;                                                            // "t1.42", "copy out"
  std::uint64_t work = 0;                                                      // the Enqueue or the CopyBlocks
  std::uint64_t done = 0;                                                      // the EventDone
  enum class On : std::uint8_t { compute, copies, prefill } on = On::compute;  // the stream: the latter two are of their own
};

struct Spans {
  std::vector<HandledSpan> handled;
  std::vector<DeviceSpan> device;
  std::unordered_map<std::uint64_t, std::size_t> handled_at;  // by message, in `handled`
};

Spans spans_of(const actors::trace::Recording& r);

}  // namespace troupe::tools
