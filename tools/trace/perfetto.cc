#include "tools/trace/perfetto.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "tools/trace/lines.h"
#include "tools/trace/spans.h"

namespace troupe::tools {

using namespace actors;
using namespace actors::trace;

namespace {

constexpr int kStreamTrack = 90, kDeviceTracks = 3;  // one for each DeviceSpan::On

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      out += std::string{'\\', c};
    else if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7F)
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    else
      out += c;
  }
  return out + '"';
}

class Exporter {
 public:
  explicit Exporter(const Recording& r) : r_(r), start_(start_of(r)), spans_(spans_of(r)) {}

  std::string text() {
    add(R"({"ph":"M","pid":1,"name":"process_name","args":{"name":"troupe"}})");
    handled();
    device();
    arrows();
    return "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n" + out_ + "\n]}\n";
  }

 private:
  void add(const std::string& event) {
    if (!out_.empty()) out_ += ",\n";
    out_ += event;
  }
  double us(TimeNs t) const { return static_cast<double>(t - start_) / 1e3; }
  static int track_of(const Party& p) { return static_cast<int>(p.sender) & 63; }
  static int track_of(const DeviceSpan& s) { return kStreamTrack + static_cast<int>(s.on); }
  void name_track(int id, const std::string& name) {
    if (std::exchange(named_[id], true)) return;
    add(fmt::format(R"({{"ph":"M","pid":1,"tid":{},"name":"thread_name","args":{{"name":{}}}}})", id, quoted(name)));
    add(fmt::format(R"({{"ph":"M","pid":1,"tid":{},"name":"thread_sort_index","args":{{"sort_index":{}}}}})", id, id));
  }
  void slice(int track, const Span& s, const std::string& name, const std::string& args) {
    add(fmt::format(R"({{"ph":"X","pid":1,"tid":{},"ts":{:.3f},"dur":{:.3f},"cat":"{}","name":{},"args":{{{}}}}})", track, us(s.begin),
                    static_cast<double>(s.end - s.begin) / 1e3, track >= kStreamTrack ? "device" : "actor", quoted(name), args));
  }

  void handled() {
    for (const HandledSpan& s : spans_.handled) {
      const RecordHead& h = r_.events[s.receipt].head;
      const Event* sent = r_.sent(h.seq);
      name_track(track_of(s.who), name(s.who.sender));
      slice(track_of(s.who), s, type_name(h.type),
            fmt::format(R"("message":{},"seq":{})", quoted(sent != nullptr ? label(sent->message) : "?"), quoted(seq_label(h.seq))));
      if (sent != nullptr) counters(*sent, s.begin);
    }
  }

  void counters(const Event& sent, TimeNs at) {
    const auto counter = [&](const char* what, std::uint64_t value) {
      add(fmt::format(R"({{"ph":"C","pid":1,"ts":{:.3f},"name":"{}","args":{{"value":{}}}}})", us(at), what, value));
    };
    const auto facts = [&](const DeviceFacts& f) {
      counter("steps in flight", f.in_flight);
      counter("blocks in use", std::uint64_t{f.used_blocks} + f.fenced_blocks);
      counter("slots in use", f.total_slots - std::min(f.free_slots, f.total_slots));
    };
    if (const auto* settled = std::get_if<Settled>(&sent.message)) facts(settled->facts);
    if (const auto* accepted = std::get_if<Accepted>(&sent.message)) facts(accepted->facts);
  }

  void device() {
    for (const DeviceSpan& s : spans_.device) {
      constexpr const char* kNames[] = {"device stream", "copy stream of the device", "prefill stream of the device"};
      name_track(track_of(s), kNames[static_cast<std::size_t>(s.on)]);
      const AnyMessage& work = r_.sent(s.work)->message;
      slice(track_of(s), s, s.name,
            fmt::format(R"("{}":{})", std::holds_alternative<Enqueue>(work) ? "step" : "copy", quoted(label(work))));
      if (const auto put = spans_.handled_at.find(s.work); put != spans_.handled_at.end()) {
        const HandledSpan& from = spans_.handled[put->second];
        arrow(track_of(from.who), from, s.begin, track_of(s), s, "runs");
      }
    }
  }

  // From the span of the cause, where the message was sent, to the span in which it was handled.
  void arrows() {
    std::unordered_map<std::uint64_t, const DeviceSpan*> by_driver;
    for (const DeviceSpan& s : spans_.device) by_driver[s.done] = &s;
    for (const HandledSpan& to : spans_.handled) {
      const Event* sent = r_.sent(r_.events[to.receipt].head.seq);
      if (sent == nullptr) continue;
      const RecordHead& h = sent->head;
      if (const auto driver = by_driver.find(h.seq); driver != by_driver.end()) {
        arrow(track_of(*driver->second), *driver->second, h.time, track_of(to.who), to, type_name(h.type));
      } else if (const auto cause = spans_.handled_at.find(h.cause); cause != spans_.handled_at.end()) {
        const HandledSpan& from = spans_.handled[cause->second];
        if (from.who == h.from) arrow(track_of(from.who), from, h.time, track_of(to.who), to, type_name(h.type));
      }
    }
  }

  // Begins within `from`, at `at` if that is there, and ends at the beginning of `to`; none leads back in time.
  void arrow(int from_track, const Span& from, TimeNs at, int to_track, const Span& to, const std::string& name) {
    at = std::clamp(std::min(at, to.begin), from.begin, from.end - 1);
    if (at > to.begin) return;
    const std::uint64_t id = ++arrows_;
    add(fmt::format(R"({{"ph":"s","pid":1,"tid":{},"ts":{:.3f},"id":{},"cat":"message","name":{}}})", from_track, us(at), id,
                    quoted(name)));
    add(fmt::format(R"({{"ph":"f","bp":"e","pid":1,"tid":{},"ts":{:.3f},"id":{},"cat":"message","name":{}}})", to_track, us(to.begin), id,
                    quoted(name)));
  }

  const Recording& r_;
  const TimeNs start_;
  const Spans spans_;
  std::uint64_t arrows_ = 0;
  bool named_[kStreamTrack + kDeviceTracks] = {};
  std::string out_;
};

}  // namespace

std::string perfetto(const Recording& r) { return Exporter(r).text(); }

}  // namespace troupe::tools
