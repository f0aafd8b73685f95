#include "tools/trace/spans.h"

#include <algorithm>
#include <limits>
#include <map>

namespace troupe::tools {

using namespace actors;
using namespace actors::trace;

namespace {

constexpr TimeNs kShortest = 200;  // nanoseconds, where a handler sent nothing: when it returned is not recorded

using Track = std::pair<Sender, std::uint16_t>;
Track track_of(const Party& p) { return {p.sender, p.index}; }

// The last that the handling of each message sent. Not what the driver sends for it: that comes long after the stream's
// actor was done.
std::unordered_map<std::uint64_t, TimeNs> last_sent(const Recording& r) {
  std::unordered_map<std::uint64_t, TimeNs> last;
  for (const Event& e : r.events) {
    if (e.head.kind != RecordKind::sent || e.head.cause == 0) continue;
    const Event* taken = r.received(e.head.cause);
    if (taken == nullptr || !(taken->head.to == e.head.from)) continue;
    TimeNs& at = last[e.head.cause];
    at = std::max(at, e.head.time);
  }
  return last;
}

void handled(const Recording& r, Spans& out) {
  const auto last = last_sent(r);
  for (std::size_t i = 0; i < r.events.size(); ++i) {
    const RecordHead& h = r.events[i].head;
    if (h.kind != RecordKind::received) continue;
    const auto sent = last.find(h.seq);
    HandledSpan s;
    s.begin = h.time;
    s.end = std::max(h.time, sent == last.end() ? h.time : sent->second) + kShortest;
    s.who = h.to;
    s.receipt = i;
    out.handled.push_back(s);
  }
  // An actor does one thing at a time: a span ends where the next begins at the latest.
  std::map<Track, TimeNs> next;
  for (auto s = out.handled.rbegin(); s != out.handled.rend(); ++s) {
    const auto [it, is_last] = next.try_emplace(track_of(s->who), std::numeric_limits<TimeNs>::max());
    if (!is_last) s->end = std::min(s->end, it->second);
    it->second = s->begin;
  }
  std::map<Track, TimeNs> free;
  for (std::size_t i = 0; i < out.handled.size(); ++i) {
    HandledSpan& s = out.handled[i];
    TimeNs& from = free[track_of(s.who)];
    s.begin = std::max(s.begin, from);
    s.end = std::max(s.end, s.begin + 1);
    from = s.end;
    out.handled_at.emplace(r.events[s.receipt].head.seq, i);
  }
}

void device(const Recording& r, Spans& out) {
  std::map<std::uint32_t, const Event*> pending;  // the receipt, by ring slot; copies have the places after the ring
  const std::uint32_t ring_slots = r.configs ? r.configs->device.ring_slots : 0;
  TimeNs free[3] = {};  // when each stream is, by DeviceSpan::On
  for (const Event& e : r.events) {
    const Event* sent = e.head.kind == RecordKind::received ? r.sent(e.head.seq) : nullptr;
    if (sent != nullptr) {
      if (const auto* m = std::get_if<Enqueue>(&sent->message)) pending[m->step->slot.slot] = &e;
      if (const auto* m = std::get_if<CopyBlocks>(&sent->message); m != nullptr && r.configs) pending[ring_slots + m->handles.place] = &e;
    }
    const auto* done = e.head.kind == RecordKind::sent ? std::get_if<EventDone>(&e.message) : nullptr;
    const auto it = done == nullptr ? pending.end() : pending.find(done->ring_slot);
    if (it == pending.end()) continue;
    const Event& work = *r.sent(it->second->head.seq);
    const auto* copy = std::get_if<CopyBlocks>(&work.message);
    if ((copy != nullptr ? copy->copy : std::get<Enqueue>(work.message).step->ticket) != done->ticket) continue;
    DeviceSpan s;
    if (copy != nullptr && copy->handles.order != 0) s.on = DeviceSpan::On::copies;
    if (copy == nullptr && std::get<Enqueue>(work.message).step->slot.stream == kPrefillStream) s.on = DeviceSpan::On::prefill;
    TimeNs& before = free[static_cast<std::size_t>(s.on)];
    s.begin = std::max(it->second->head.time, before);
    s.end = before = std::max(e.head.time, s.begin + 1);
    s.name = copy == nullptr ? label(done->ticket) : copy->out ? "copy out" : "copy in";
    s.work = work.head.seq;
    s.done = e.head.seq;
    out.device.push_back(std::move(s));
    pending.erase(it);
  }
}

}  // namespace

Spans spans_of(const Recording& r) {
  Spans out;
  handled(r, out);
  device(r, out);
  return out;
}

}  // namespace troupe::tools
