#include "messages/feed.h"

#include <fmt/format.h>

namespace troupe {

const char* name(CellStatus status) {
  switch (status) {
    case CellStatus::ok:
      return "ok";
    case CellStatus::no_token:
      return "no_token";
    case CellStatus::stale_feed:
      return "stale_feed";
    case CellStatus::poisoned:
      return "poisoned";
  }
  return "?";
}

std::string label(const FeedSource& x) {
  if (x.is_feed()) return fmt::format("feed({}[{}])", label(x.feed_ticket()), x.feed_row());
  return fmt::format("host@{}", x.begin());
}

std::string label(const RowMask& x) {
  if (x.empty()) return "-";
  if (x.a == RowMask::kNone) return fmt::format("bar({})", x.b);
  if (x.b == RowMask::kNone) return fmt::format("bar({})", x.a);
  return fmt::format("bar({},{})", x.a, x.b);
}

std::string label(const Readback& x) { return fmt::format("{}>{} {}", x.input, x.id, name(x.status)); }

}  // namespace troupe
