#include "tools/trace/perfetto.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <unordered_map>
#include <vector>

#include "tools/trace/lines.h"

namespace troupe::tools {

using namespace actors;
using namespace actors::trace;

namespace {

constexpr TimeNs kShortest = 200;  // of a slice, so that an arrow can end in it
constexpr int kStreamTrack = 90;

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
  explicit Exporter(const Recording& r) : r_(r), start_(start_of(r)) {
    for (const Event& e : r.events) {
      if (e.head.kind == RecordKind::sent && e.head.cause != 0) {
        TimeNs& last = last_sent_[e.head.cause];
        last = std::max(last, e.head.time);
      }
    }
  }

  std::string text() {
    add(R"({"ph":"M","pid":1,"name":"process_name","args":{"name":"troupe"}})");
    slices();
    steps();
    arrows();
    return "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n" + out_ + "\n]}\n";
  }

 private:
  struct Slice {
    TimeNs begin = 0;
    TimeNs end = 0;
    int track = 0;
  };

  void add(const std::string& event) {
    if (!out_.empty()) out_ += ",\n";
    out_ += event;
  }
  double us(TimeNs t) const { return static_cast<double>(t - start_) / 1e3; }
  int track(const Party& p) {
    const int id = static_cast<int>(p.sender) & 63;
    if (named_[id]) return id;
    named_[id] = true;
    add(fmt::format(R"({{"ph":"M","pid":1,"tid":{},"name":"thread_name","args":{{"name":{}}}}})", id, quoted(name(p.sender))));
    add(fmt::format(R"({{"ph":"M","pid":1,"tid":{},"name":"thread_sort_index","args":{{"sort_index":{}}}}})", id, id));
    return id;
  }

  // What an actor does for one message: from taking it up to the last that it sends for it. An actor does one at a time.
  void slices() {
    std::map<int, TimeNs> next;  // by track, of the receipt after
    std::vector<const Event*> receipts;
    for (const Event& e : r_.events)
      if (e.head.kind == RecordKind::received) receipts.push_back(&e);
    std::vector<TimeNs> ends(receipts.size());
    for (std::size_t i = receipts.size(); i > 0; --i) {
      const RecordHead& h = receipts[i - 1]->head;
      const auto sent = last_sent_.find(h.seq);
      TimeNs end = std::max(h.time, sent == last_sent_.end() ? h.time : sent->second) + kShortest;
      const int id = static_cast<int>(h.to.sender) & 63;
      if (const auto n = next.find(id); n != next.end()) end = std::min(end, n->second);
      ends[i - 1] = std::max(end, h.time);
      next[id] = h.time;
    }
    for (std::size_t i = 0; i < receipts.size(); ++i) {
      const Event& e = *receipts[i];
      const Event* sent = r_.sent(e.head.seq);
      const Slice s{e.head.time, ends[i], track(e.head.to)};
      handled_[e.head.seq] = s;
      add(fmt::format(R"({{"ph":"X","pid":1,"tid":{},"ts":{:.3f},"dur":{:.3f},"name":{},"args":{{"message":{},"seq":{}}}}})", s.track,
                      us(s.begin), static_cast<double>(s.end - s.begin) / 1e3, quoted(type_name(e.head.type)),
                      quoted(sent != nullptr ? label(sent->message) : "?"), quoted(seq_label(e.head.seq))));
      if (sent != nullptr) counters(*sent, e.head.time);
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

  // A step runs from when the stream has it and the step before it is done, to its event.
  void steps() {
    std::map<Ticket, const Event*> enqueued;
    TimeNs last = start_;
    for (const Event& e : r_.events) {
      if (e.head.kind == RecordKind::received) {
        const Event* sent = r_.sent(e.head.seq);
        if (sent != nullptr && std::holds_alternative<Enqueue>(sent->message)) enqueued[sent->head.ticket] = &e;
        continue;
      }
      const auto* done = std::get_if<EventDone>(&e.message);
      if (done == nullptr) continue;
      const auto it = enqueued.find(done->ticket);
      if (it == enqueued.end()) continue;
      const auto* enqueue = std::get_if<Enqueue>(&r_.sent(it->second->head.seq)->message);
      if (enqueue->step->slot.slot != done->ring_slot) continue;  // of a copy, which is numbered apart
      if (!stream_named_) {
        stream_named_ = true;
        add(fmt::format(R"({{"ph":"M","pid":1,"tid":{},"name":"thread_name","args":{{"name":"device stream"}}}})", kStreamTrack));
        add(fmt::format(R"({{"ph":"M","pid":1,"tid":{},"name":"thread_sort_index","args":{{"sort_index":{}}}}})", kStreamTrack,
                        kStreamTrack));
      }
      const Slice s{std::min(std::max(it->second->head.time, last), e.head.time), e.head.time, kStreamTrack};
      last = e.head.time;
      const Event* step = r_.sent(it->second->head.seq);
      add(fmt::format(R"({{"ph":"X","pid":1,"tid":{},"ts":{:.3f},"dur":{:.3f},"name":{},"args":{{"step":{}}}}})", kStreamTrack, us(s.begin),
                      static_cast<double>(s.end - s.begin) / 1e3, quoted(label(done->ticket)), quoted(label(step->message))));
      by_driver_[e.head.seq] = s;
    }
  }

  // From the slice of the cause, where the message was sent, to the slice in which it was handled.
  void arrows() {
    std::uint64_t id = 0;
    for (const Event& e : r_.events) {
      if (e.head.kind != RecordKind::sent || e.head.seq == 0) continue;
      const auto to = handled_.find(e.head.seq);
      if (to == handled_.end()) continue;
      Slice from;
      if (const auto driver = by_driver_.find(e.head.seq); driver != by_driver_.end()) {
        from = driver->second;
      } else if (const auto cause = handled_.find(e.head.cause);
                 cause != handled_.end() && cause->second.track == (static_cast<int>(e.head.from.sender) & 63)) {
        from = cause->second;
      } else {
        continue;
      }
      const TimeNs at = std::clamp(e.head.time, from.begin, from.end);
      if (at > to->second.begin) continue;
      ++id;
      add(fmt::format(R"({{"ph":"s","pid":1,"tid":{},"ts":{:.3f},"id":{},"cat":"message","name":{}}})", from.track, us(at), id,
                      quoted(type_name(e.head.type))));
      add(fmt::format(R"({{"ph":"f","bp":"e","pid":1,"tid":{},"ts":{:.3f},"id":{},"cat":"message","name":{}}})", to->second.track,
                      us(to->second.begin), id, quoted(type_name(e.head.type))));
    }
  }

  const Recording& r_;
  const TimeNs start_;
  std::unordered_map<std::uint64_t, TimeNs> last_sent_;  // by cause
  std::unordered_map<std::uint64_t, Slice> handled_;     // by message
  std::unordered_map<std::uint64_t, Slice> by_driver_;   // by EventDone
  bool named_[64] = {};
  bool stream_named_ = false;
  std::string out_;
};

}  // namespace

std::string perfetto(const Recording& r) { return Exporter(r).text(); }

}  // namespace troupe::tools
