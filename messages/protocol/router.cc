#include "messages/protocol/router.h"

#include <fmt/format.h>

#include "messages/protocol/text.h"

namespace troupe {

using namespace protocol_text;

std::string label(const Open& x) {
  const std::string restore = x.restore.incarnation == 0 ? "" : fmt::format(" restore={}@{}", label(x.restore), x.restore_len);
  return fmt::format("Open {} tokens={} {}{}", label(x.request), x.n_tokens, label(x.adapter), restore);
}
std::string label(const Opened& x) {
  return or_error("Opened " + label(x.request), x.error,
                  fmt::format("{} slot={} cached={}{}{}", label(x.seq), x.slot, x.cached_len, x.restored ? " restored" : "",
                              x.snapshot == DeviceRow::kNone ? "" : fmt::format(" snapshot={}", x.snapshot)));
}
std::string label(const Saved& x) { return or_error("Saved " + label(x.seq), x.error, fmt::format("positions={}", x.positions)); }
std::string label(const Launch& x) { return "Launch " + of(x.plan); }
std::string label(const Accepted& x) { return or_error("Accepted " + label(x.ticket), x.error, label(x.facts)); }
std::string label(const Await& x) { return "Await " + label(x.ticket); }
std::string label(const Settled& x) { return "Settled " + of(x.result); }
std::string label(const Apply& x) { return "Apply " + label(x.effect); }
std::string label(const Applied& x) { return or_error("Applied", x.error, label(x.outcome)); }
std::string label(const Teardown&) { return "Teardown"; }
std::string label(const TornDown& x) { return "TornDown " + label(x.facts); }
std::string label(const Sample& x) { return "Sample " + of(x.batch); }
std::string label(const Sampled& x) { return "Sampled " + of(x.batch); }

}  // namespace troupe
