#include "messages/protocol/requests.h"

#include <fmt/format.h>

#include "messages/protocol/text.h"

namespace troupe {

using namespace protocol_text;

std::string label(const Submit& x) { return "Submit " + of(x.request); }
std::string label(const SubmitReply& x) { return or_error("SubmitReply", x.error, label(x.request)); }
std::string label(const Placed& x) { return x.attempt == 0 ? label(x.id) : fmt::format("{}/{}", label(x.id), x.attempt); }
std::string label(const Admit& x) {
  const std::string again = x.attempt == 0 ? "" : fmt::format(" attempt={} output={}", x.attempt, x.output.size());
  return fmt::format("Admit {} {}{}{}", label(x.id), of(x.request), again, at(x.replica));
}
std::string label(const Cancel& x) { return fmt::format("Cancel {}", x.client); }
std::string label(const CancelRequest& x) { return "CancelRequest " + label(x.id) + at(x.replica); }
std::string label(const CancelReply& x) { return fmt::format("CancelReply {} {}", label(x.id), name(x.outcome)); }
std::string label(const Ended& x) { return fmt::format("Ended{{n={}}}{}", x.requests.size(), at(x.replica)); }
std::string label(const Drain& x) { return "Drain" + at(x.replica); }
std::string label(const Drained& x) { return "Drained" + at(x.replica); }
std::string label(const Halt& x) { return "Halt " + label(x.error); }
std::string label(const Tick&) { return "Tick"; }
std::string label(const SetTimer& x) { return fmt::format("SetTimer @{}", x.at); }
std::string label(const Reclaim& x) { return fmt::format("Reclaim{{n={}}}", x.requests.size()); }
std::string label(const ReclaimedRequest& x) {
  return fmt::format("{} output={}{}", label(Placed{x.id, x.attempt}), x.output.size(), x.ended ? " ended" : "");
}
std::string label(const Reclaimed& x) { return fmt::format("Reclaimed{{n={}}}", x.requests.size()); }
std::string label(const EndRequests& x) { return fmt::format("EndRequests{{n={}}}", x.finishes.size()); }
std::string label(const Deliver& x) { return "Deliver " + of(x.batch); }
std::string label(const Delivered& x) { return fmt::format("Delivered{{n={}}}", x.requests.size()); }

}  // namespace troupe
