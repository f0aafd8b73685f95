#include "tools/trace/lines.h"

#include <fmt/format.h>

#include <type_traits>
#include <utility>
#include <vector>

namespace troupe::tools {

using namespace actors;
using namespace actors::trace;

namespace {

constexpr int kMostCauses = 10'000;  // a chain in a file that somebody made up may be a ring

double ms(TimeNs t) { return static_cast<double>(t) / 1e6; }

template <class T>
concept Labelled = requires(const T& x) {
  troupe::label(x);
};
template <class T>
inline constexpr bool kOpen = kIsAny<T, StepPlan, StepResult, LaunchedStep, TokenBatch, SampleBatch, SampledBatch, ModelInfo, Request>;

// An inspector that writes what it sees. What has a label and is no container is its label.
class Dumper {
 public:
  static constexpr bool reads_state = true;
  static constexpr bool writes_state = false;
  using result_type = Status;

  template <class... Ts>
  Status operator()(Ts&... xs) {
    bool first = true;
    const auto one = [&](auto& x) {
      if constexpr (!std::is_same_v<std::decay_t<decltype(x)>, TraceCtx>) {  // it is in the line above
        if (!std::exchange(first, false)) text_ += ", ";
        put(x);
      }
    };
    (one(xs), ...);
    return {};
  }
  template <class M>
  void message(const M& m) {
    M copy = m;
    inspect(*this, copy);
  }
  std::string text() && { return std::move(text_); }

 private:
  template <class T>
  void put(T& x) {
    if constexpr (std::is_same_v<T, bool>) {
      text_ += x ? "true" : "false";
    } else if constexpr (std::is_enum_v<T>) {
      text_ += std::to_string(static_cast<std::uint64_t>(x));
    } else if constexpr (std::is_arithmetic_v<T>) {
      text_ += fmt::format("{}", x);
    } else if constexpr (Labelled<T> && !kOpen<T>) {
      text_ += troupe::label(x);
    } else {
      text_ += "{";
      inspect(*this, x);
      text_ += "}";
    }
  }
  void put(std::string& x) {
    text_ += '"';
    for (const char c : x)
      text_ += c == '"' || c == '\\'                  ? std::string{'\\', c}
               : static_cast<unsigned char>(c) < 0x20 ? fmt::format("\\x{:02x}", c)
                                                      : std::string{c};
    text_ += '"';
  }
  template <class T>
  void put(std::vector<T>& xs) {
    text_ += fmt::format("[{}]", xs.size());
    if constexpr (std::is_arithmetic_v<T>) {
      for (T& x : xs) text_ += fmt::format(" {}", x);
    } else {
      depth_ += 2;
      for (T& x : xs) {
        text_ += "\n" + std::string(depth_, ' ');
        put(x);
      }
      depth_ -= 2;
    }
  }
  template <class T>
  void put(Shared<T>& x) {
    if (!x) return void(text_ += "none");
    depth_ += 2;
    text_ += "\n" + std::string(depth_, ' ');
    put(const_cast<T&>(*x));
    depth_ -= 2;
  }
  template <class T>
  void put(Optional<T>& x) {
    if (!x) return void(text_ += "none");
    put(*x);
  }
  std::string text_;
  std::size_t depth_ = 2;
};

bool has_row(const StepPlan& plan, const std::set<SeqId>& sequences) {
  for (const Row& row : plan.rows)
    if (sequences.count(row.seq) != 0) return true;
  return false;
}

}  // namespace

TimeNs start_of(const Recording& r) { return r.events.empty() ? 0 : r.events.front().head.time; }

bool LinePicker::is(const RequestId& id) const {
  return id.client == *filter_.client && (!filter_.generation || id.generation == *filter_.generation) &&
         (id.generation != 0 || !filter_.generation);
}

bool LinePicker::about_request(const Event& e) {
  bool about = e.head.request != RequestId{} && is(e.head.request);
  if (const auto* opened = std::get_if<Opened>(&e.message)) {
    if (about && opened->error.code == ErrorCode::none) sequences_.insert(opened->seq);
  } else if (const auto* launch = std::get_if<Launch>(&e.message)) {
    if (has_row(*launch->plan, sequences_)) tickets_.insert(e.head.ticket);
  } else if (const auto* deliver = std::get_if<Deliver>(&e.message)) {
    for (const TokenEvent& t : deliver->batch->events) about = about || is(t.request);
    for (const Finish& f : deliver->batch->finishes) about = about || is(f.request);
  } else if (const auto* ended = std::get_if<Ended>(&e.message)) {
    for (const Placed& p : ended->requests) about = about || is(p.id);
  }
  return about || tickets_.count(e.head.ticket) != 0;
}

bool LinePicker::pick(const Event& e, TimeNs start) {
  const bool about = !filter_.client || about_request(e);
  if (!about || (e.head.kind == RecordKind::received && !filter_.receipts)) return false;
  const double at = ms(e.head.time - start);
  if (at < filter_.from_ms || at > filter_.to_ms) return false;
  if (e.head.kind == RecordKind::lost) return true;
  if (!filter_.type.empty() && filter_.type != type_name(e.head.type)) return false;
  if (!filter_.actor.empty() && filter_.actor != name(e.head.from.sender) && filter_.actor != name(e.head.to.sender)) return false;
  return !filter_.step || e.head.ticket.step == *filter_.step;
}

std::string line(const Event& e, TimeNs start) {
  const RecordHead& h = e.head;
  const double at = ms(h.time - start);
  if (h.kind == RecordKind::lost)
    return fmt::format("{:12.3f} ms  {} records are missing here: the recorder had no room for them\n", at, h.seq);
  if (h.kind == RecordKind::received)
    return fmt::format("{:12.3f} ms  {:<15} {} takes up {}\n", at, seq_label(h.seq), label(h.to), type_name(h.type));
  return fmt::format("{:12.3f} ms  {:<15} {} > {}  {}{}\n", at, seq_label(h.seq), label(h.from), label(h.to),
                     h.type == 0 ? "of a form that this build does not know" : label(e.message),
                     h.cause == 0 ? "" : "  (after " + seq_label(h.cause) + ")");
}

std::string dump(const AnyMessage& m) {
  return std::visit(
      [](const auto& x) -> std::string {
        if constexpr (std::is_same_v<std::decay_t<decltype(x)>, std::monostate>) {
          return "?";
        } else {
          Dumper d;
          d.message(x);
          return std::move(d).text();
        }
      },
      m);
}

std::string causes(const Recording& r, std::uint64_t seq, TimeNs start) {
  std::string out;
  const Event* e = r.sent(seq);
  for (int i = 0; e != nullptr && e->head.cause != 0 && i < kMostCauses; ++i) {
    const std::uint64_t cause = e->head.cause;
    e = r.sent(cause);
    out += e != nullptr ? "  by" + line(*e, start) : fmt::format("  by {}, which is not in the recording\n", seq_label(cause));
  }
  return out;
}

std::string show(const Recording& r, std::uint64_t seq) {
  const Event* e = r.sent(seq);
  if (e == nullptr) return {};
  const TimeNs start = start_of(r);
  std::string out = line(*e, start) + "  " + dump(e->message) + "\n";
  if (const Event* taken = r.received(seq)) {
    out += fmt::format("  taken up by {} after {:.1f} us, on thread {} (sent on {})\n", label(taken->head.to),
                       static_cast<double>(taken->head.time - e->head.time) / 1e3, taken->head.thread, e->head.thread);
  } else {
    out += "  not taken up in this recording\n";
  }
  out += "causes, up to the root:\n" + causes(r, seq, start) + "what its handling sent:\n";
  for (const Event& other : r.events)
    if (other.head.kind == RecordKind::sent && other.head.cause == seq) out += "  " + line(other, start);
  return out;
}

}  // namespace troupe::tools
