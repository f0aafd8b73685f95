// A recording's records as text: one line a message, or one message in full.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "actors/trace/reader.h"

namespace troupe::tools {

struct LineFilter {
  std::string actor;  // sender or receiver
  std::string type;   // "Launch"
  std::optional<std::uint64_t> client;
  std::optional<std::uint64_t> generation;  // with client
  std::optional<std::uint64_t> step;
  double from_ms = 0;  // since the first record
  double to_ms = 1e300;
  bool receipts = false;  // show when messages were taken up, too
};

// Which messages are about what the filter names. Takes the events in their order, since a step's rows name sequences
// and not requests.
class LinePicker {
 public:
  explicit LinePicker(LineFilter filter) : filter_(std::move(filter)) {}
  bool pick(const actors::trace::Event& e, TimeNs start);

 private:
  bool about_request(const actors::trace::Event& e);
  bool is(const RequestId& id) const;
  LineFilter filter_;
  std::set<SeqId> sequences_;  // of the request
  std::set<Ticket> tickets_;   // steps with a row of it
};

// "   12.345 ms  scheduler:17  scheduler > router  Launch DecodeFed{n=4, fed=3}  (after router:9)"
std::string line(const actors::trace::Event& e, TimeNs start);

// Every field of a message, a line for each entry of its lists.
std::string dump(const actors::trace::AnyMessage& m);

// The message, its causes up to the root, and what it caused. Empty: there is no such message.
std::string show(const actors::trace::Recording& r, std::uint64_t seq);
// "  by scheduler:17 Launch ..." for each cause, up to the root.
std::string causes(const actors::trace::Recording& r, std::uint64_t seq, TimeNs start);

TimeNs start_of(const actors::trace::Recording& r);

}  // namespace troupe::tools
