#include "tools/trace/story.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "actors/trace/streams_of.h"
#include "tools/trace/lines.h"

namespace troupe::tools {

using namespace actors;
using namespace actors::trace;

namespace {

double ms(TimeNs t) { return static_cast<double>(t) / 1e6; }

// The newest request of "7", or the one of "7#2".
const ClientStream* find(const ClientStreams& all, const std::string& id) {
  const ClientStream* found = nullptr;
  for (const auto& [key, s] : all)
    if (label(s.id) == id || std::to_string(s.id.client) == id) found = &s;
  return found;
}

class Teller {
 public:
  Teller(const Recording& r, const ClientStream& s) : r_(r), s_(s), start_(r.events[s.admitted].head.time) {}

  std::string tell() {
    const Request& q = *s_.request;
    say(start_, fmt::format("{} was accepted: {} prompt tokens, at most {} more, temperature {}", label(s_.id), q.prompt.size(),
                            q.stop.max_tokens, q.sampling.temperature));
    for (const Event& e : r_.events) {
      if (e.head.kind == RecordKind::sent) std::visit([&](const auto& m) { on(e, m); }, e.message);
    }
    if (s_.tokens.size() > 1) {
      const TimeNs first = r_.events[s_.tokens.front().event].head.time, last = r_.events[s_.tokens.back().event].head.time;
      out_ += fmt::format(
          "first token after {:.3f} ms, then {} in {:.3f} ms; {} rows in {} steps, {} of them fed on the device; {} over-runs, {} "
          "rollbacks, {} preemptions\n",
          ms(first - start_), s_.tokens.size() - 1, ms(last - first), rows_, steps_.size(), fed_, overruns_, rollbacks_,
          opens_ > 0 ? opens_ - 1 : 0);
    }
    if (!s_.finish) out_ += "it has no end in this recording\n";
    return std::move(out_);
  }

 private:
  template <class M>
  void on(const Event&, const M&) {}
  void on(const Event& e, const Opened& m) {
    if (m.request != s_.id) return;
    if (m.error.code != ErrorCode::none) return say(e.head.time, "was refused a slot: " + label(m.error));
    ++opens_;
    seq_ = m.seq;
    say(e.head.time, fmt::format("{} as {} in slot {}, {} positions from the prefix cache",
                                 opens_ == 1 ? "was opened" : "was opened again, after a preemption,", label(m.seq), m.slot, m.cached_len));
  }
  void on(const Event& e, const Launch& m) {
    for (const Effect& effect : m.plan->effects) on_effect(e, effect);
    for (std::size_t i = 0; i < m.plan->rows.size(); ++i) {
      const Row& row = m.plan->rows[i];
      if (row.seq != seq_) continue;
      ++rows_;
      fed_ += row.source.is_feed() ? 1 : 0;
      steps_.insert(m.plan->ticket);
      in_flight_.insert(m.plan->ticket);
      const char* kind = row.n_tokens > 1 || row.readback == RowReadback::none ? "a chunk of its prompt"
                         : row.source.is_feed()                                ? "a row fed on the device"
                                                                               : "a row";
      say(e.head.time, fmt::format("{}: {} at position {}{}", label(m.plan->ticket), kind, row.position,
                                   row.n_tokens > 1 ? fmt::format(", {} tokens", row.n_tokens) : ""));
    }
  }
  void on(const Event& e, const Apply& m) { on_effect(e, m.effect); }
  void on(const Event& e, const Settled& m) {
    if (in_flight_.erase(m.result->ticket) == 0) return;
    if (!m.result->ok()) return say(e.head.time, fmt::format("{} failed: {}", label(m.result->ticket), label(m.result->error)));
    if (!released_) return;
    ++overruns_;
    say(e.head.time, fmt::format("{} settled: an over-run, dropped", label(m.result->ticket)));
  }
  void on(const Event& e, const Deliver& m) {
    for (const TokenEvent& t : m.batch->events)
      if (t.request == s_.id)
        say(e.head.time, fmt::format("got token {}: {} \"{}\"", t.index, t.id, escaped(m.batch->text, t.text_begin, t.text_size)));
    for (const Finish& f : m.batch->finishes)
      if (f.request == s_.id)
        say(e.head.time, fmt::format("ended by {}{}", name(f.reason), f.error.code == ErrorCode::none ? "" : ": " + label(f.error)));
  }
  void on(const Event& e, const Cancel& m) {
    if (m.client == s_.id.client && e.head.time >= start_ && !released_) say(e.head.time, "its client cancels it");
  }
  void on_effect(const Event& e, const Effect& effect) {
    if (const auto* rollback = std::get_if<Rollback>(&effect)) {
      if (rollback->seq != seq_) return;
      ++rollbacks_;
      say(e.head.time, fmt::format("what is in flight of it is disowned, epoch {}", rollback->epoch));
    } else if (const auto* release = std::get_if<ReleaseSeq>(&effect)) {
      if (release->seq != seq_) return;
      released_ = true;
      say(e.head.time,
          fmt::format("its slot and blocks are given back{}", in_flight_.empty() ? "" : ", once the steps in flight have settled"));
    }
  }
  static std::string escaped(const std::string& text, std::uint32_t begin, std::uint32_t size) {
    std::string out;
    for (const char c : begin <= text.size() ? text.substr(begin, size) : std::string())
      out += static_cast<unsigned char>(c) < 0x20 ? fmt::format("\\x{:02x}", c) : std::string{c};
    return out;
  }
  void say(TimeNs at, const std::string& what) { out_ += fmt::format("{:12.3f} ms  {}\n", ms(at - start_), what); }

  const Recording& r_;
  const ClientStream& s_;
  const TimeNs start_;
  SeqId seq_;
  std::set<Ticket> steps_, in_flight_;
  std::uint64_t rows_ = 0, fed_ = 0, overruns_ = 0, rollbacks_ = 0, opens_ = 0;
  bool released_ = false;
  std::string out_;
};

struct Series {
  std::vector<double> xs;
  void add(TimeNs x) { xs.push_back(static_cast<double>(x) / 1e3); }
  std::string text() {
    if (xs.empty()) return "-";
    std::sort(xs.begin(), xs.end());
    const auto at = [&](double q) { return xs[static_cast<std::size_t>(q * static_cast<double>(xs.size() - 1))]; };
    return fmt::format("median {:.1f}, 90 % {:.1f}, 99 % {:.1f}, most {:.1f} us (of {})", at(0.5), at(0.9), at(0.99), xs.back(), xs.size());
  }
};

class Counter {
 public:
  explicit Counter(const Recording& r) : r_(r) {}
  std::string text() {
    for (const Event& e : r_.events) {
      if (e.head.kind == RecordKind::sent) {
        ++messages_[e.head.type];
        if (r_.received(e.head.seq) != nullptr) {
          Hop& hop = hops_[{e.head.from.sender, r_.received(e.head.seq)->head.to.sender}];
          hop.most = std::max(hop.most, ++hop.waiting);
        }
        std::visit([&](const auto& m) { on(e, m); }, e.message);
      } else if (e.head.kind == RecordKind::received) {
        taken(e);
      }
    }
    return report();
  }

 private:
  template <class M>
  void on(const Event&, const M&) {}
  void on(const Event&, const Launch& m) {
    for (const Effect& effect : m.plan->effects) on_effect(effect);
    if (m.plan->rows.empty()) return;
    ++steps_;
    rows_ += m.plan->rows.size();
    bool fed = false, decode = false;
    for (const Row& row : m.plan->rows) {
      fed = fed || row.source.is_feed();
      decode = decode || (row.n_tokens == 1 && row.readback != RowReadback::none);
      fed_rows_ += row.source.is_feed() ? 1 : 0;
    }
    decode_steps_ += decode ? 1 : 0;
    ahead_ += fed && in_flight_ > 0 ? 1 : 0;
    ++in_flight_;
    std::vector<SeqId>& seqs = seqs_[m.plan->ticket];
    for (const Row& row : m.plan->rows) seqs.push_back(row.seq);
  }
  void on(const Event&, const Apply& m) { on_effect(m.effect); }
  void on(const Event&, const Accepted& m) {
    if (m.error.code != ErrorCode::none && in_flight_ > 0) --in_flight_, ++refused_;
  }
  void on(const Event&, const Settled& m) {
    if (in_flight_ > 0) --in_flight_;
    failed_ += m.result->ok() ? 0 : 1;
    for (const SeqId& seq : seqs_[m.result->ticket]) overruns_ += released_.count(seq) != 0 ? 1 : 0;
    seqs_.erase(m.result->ticket);
    kv_used_ = std::max(kv_used_, m.facts.used_blocks + m.facts.fenced_blocks);
    kv_total_ = m.facts.total_blocks;
  }
  void on(const Event& e, const LoraAnswer& m) {
    if (e.head.from.sender == Sender::lora) pauses_.add(m.ack.paused_ns);
  }
  void on(const Event& e, const EventDone& m) {
    const auto started = started_.find(m.ticket);
    if (started == started_.end() || slot_[m.ticket].slot != m.ring_slot) return;  // of a copy, which is numbered apart
    const std::uint32_t stream = std::min(slot_[m.ticket].stream, kStepStreams - 1);
    done_[m.ticket] = e.head.time;
    TimeNs& last = last_done_[stream];
    const TimeNs begin = std::max(started->second, last);
    step_.add(e.head.time - begin);
    if (stream == kComputeStream) busy_ += e.head.time - begin;
    if (stream == kComputeStream && last != 0 && begin > last) idle_.add(begin - last);
    last = e.head.time;
  }
  void on_effect(const Effect& effect) {
    rollbacks_ += std::holds_alternative<Rollback>(effect) ? 1 : 0;
    if (const auto* release = std::get_if<ReleaseSeq>(&effect)) released_.insert(release->seq);
  }
  // The host loop: from a step's completion to the next launch that it led to being taken up by the stream.
  void taken(const Event& e) {
    const Event* sent = r_.sent(e.head.seq);
    if (sent == nullptr) return;
    Hop& hop = hops_[{sent->head.from.sender, e.head.to.sender}];
    hop.time.add(e.head.time - sent->head.time);
    if (hop.waiting > 0) --hop.waiting;
    const auto* enqueue = std::get_if<Enqueue>(&sent->message);
    if (enqueue == nullptr) return;
    started_[enqueue->step->ticket] = e.head.time;
    slot_[enqueue->step->ticket] = enqueue->step->slot;
    const Event* cause = r_.sent(sent->head.cause);  // Launch
    cause = cause != nullptr ? r_.sent(cause->head.cause) : nullptr;
    const auto* settled = cause != nullptr ? std::get_if<Settled>(&cause->message) : nullptr;
    if (settled == nullptr) return;
    if (const auto it = done_.find(settled->result->ticket); it != done_.end()) loop_.add(e.head.time - it->second);
  }

  std::string report() {
    std::string out;
    const ClientStreams streams = streams_of(r_);
    std::uint64_t tokens = 0, total = 0;
    Series first;
    for (const auto& [key, s] : streams) {
      tokens += s.tokens.size();
      if (!s.tokens.empty()) first.add(r_.events[s.tokens.front().event].head.time - r_.events[s.admitted].head.time);
    }
    const TimeNs span = r_.events.empty() ? 0 : r_.events.back().head.time - r_.events.front().head.time;
    for (const auto n : messages_) total += n;
    const auto share = [](double x, double n) { return n == 0 ? 0.0 : 100.0 * x / n; };
    out += fmt::format(
        "{} messages in {:.3f} s, {:.1f} bytes each, and {} of the header; {} records lost\n", total, static_cast<double>(span) / 1e9,
        total == 0 ? 0.0 : static_cast<double>(r_.bytes - r_.header_bytes) / static_cast<double>(total), r_.header_bytes, r_.lost);
    out += fmt::format("{} requests, {} tokens ({:.1f}/s); first token: {}\n", streams.size(), tokens,
                       span == 0 ? 0.0 : static_cast<double>(tokens) * 1e9 / static_cast<double>(span), first.text());
    out += fmt::format("{} steps, {:.1f} rows each, {} fed rows; {} with decode rows, {} launched ahead ({:.1f} %)\n", steps_,
                       steps_ == 0 ? 0.0 : static_cast<double>(rows_) / static_cast<double>(steps_), fed_rows_, decode_steps_, ahead_,
                       share(static_cast<double>(ahead_), static_cast<double>(decode_steps_)));
    out += fmt::format("{} over-runs, {} rollbacks, {} launches refused, {} steps failed\n", overruns_, rollbacks_, refused_, failed_);
    out += fmt::format("blocks: at most {} of {} used\n", kv_used_, kv_total_);
    out += fmt::format("host loop (a step's end to the next one on the stream): {}\n", loop_.text());
    out += fmt::format("a step on the device: {}\n", step_.text());
    out += fmt::format("device busy {:.1f} %; idle between steps: {}\n", share(static_cast<double>(busy_), static_cast<double>(span)),
                       idle_.text());
    if (!pauses_.xs.empty()) out += fmt::format("pauses for LoRA commands: {}\n", pauses_.text());
    for (auto& [ends, hop] : hops_)
      out += fmt::format("{} > {}: at most {} waiting; {}\n", name(ends.first), name(ends.second), hop.most, hop.time.text());
    for (std::uint16_t t = 1; t < kTypes; ++t)
      if (messages_[t] != 0) out += fmt::format("{:>10} {}\n", messages_[t], type_name(t));
    return out;
  }

  const Recording& r_;
  std::vector<std::uint64_t> messages_ = std::vector<std::uint64_t>(kTypes);
  std::uint64_t steps_ = 0, rows_ = 0, fed_rows_ = 0, decode_steps_ = 0, ahead_ = 0, rollbacks_ = 0, refused_ = 0, failed_ = 0,
                in_flight_ = 0, overruns_ = 0;
  std::uint32_t kv_used_ = 0, kv_total_ = 0;
  std::map<Ticket, TimeNs> done_, started_;
  std::map<Ticket, SlotHandles> slot_;  // of the ring
  std::map<Ticket, std::vector<SeqId>> seqs_;
  std::set<SeqId> released_;
  TimeNs last_done_[kStepStreams] = {}, busy_ = 0;  // by stream; the compute stream
  Series loop_, step_, idle_, pauses_;
  struct Hop {  // one actor's mailbox, as far as another fills it
    Series time;
    std::uint32_t waiting = 0, most = 0;
  };
  std::map<std::pair<Sender, Sender>, Hop> hops_;
};

}  // namespace

std::string story(const Recording& r, const std::string& id) {
  const ClientStreams all = streams_of(r);
  const ClientStream* s = find(all, id);
  return s == nullptr ? std::string() : Teller(r, *s).tell();
}

std::string stats(const Recording& r) { return Counter(r).text(); }

}  // namespace troupe::tools
