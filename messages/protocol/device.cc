#include "messages/protocol/device.h"

#include <fmt/format.h>

#include "messages/protocol/text.h"

namespace troupe {

using namespace protocol_text;

std::string label(const RingReady& x) { return fmt::format("RingReady{{n={}}}", x.slots.size()); }
std::string label(const Enqueue& x) { return "Enqueue " + of(x.step); }
std::string label(const Watch& x) {
  return or_error("Watch " + bracketed(x.ticket, x.ring_slot), x.error, fmt::format("n={} logits={}", x.n_rows, x.n_logits));
}
std::string label(const EventDone& x) { return or_error("EventDone " + bracketed(x.ticket, x.ring_slot), x.error, "ok"); }
std::string label(const Completed& x) { return fmt::format("Completed slot={} {}", x.ring_slot, of(x.result)); }
std::string label(const RecordEvent& x) { return fmt::format("RecordEvent {} place={}", label(x.mark), x.place); }
std::string label(const EventRecorded& x) {
  return or_error(fmt::format("EventRecorded {} place={}", label(x.mark), x.place), x.error, "ok");
}
std::string label(const CopyBlocks& x) {
  const std::string what =
      x.n_parts == 0 ? fmt::format("n={}", x.blocks.size()) : fmt::format("state={} {}+{}", x.state, x.part, x.n_parts);
  return fmt::format("CopyBlocks {} {} place={} {}{}", label(x.copy), x.out ? "out" : "in", x.handles.place, what,
                     x.after != 0 ? " waits" : "");
}
std::string label(const CopyDone& x) { return or_error(fmt::format("CopyDone {} place={}", label(x.copy), x.place), x.error, "ok"); }
std::string label(const ReadSlot& x) {
  return or_error("ReadSlot " + bracketed(x.ticket, x.ring_slot), x.error, fmt::format("n={} logits={}", x.n_rows, x.n_logits));
}

}  // namespace troupe
