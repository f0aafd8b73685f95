#include "actors/trace/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "actors/trace/streams_of.h"

namespace troupe::actors::trace {
namespace {

constexpr int kMostHeld = 16;  // steps that can settle before their tokens are delivered, and then some

bool whole(const ClientStream& s) {
  return s.finish && (s.finish->reason == FinishReason::stop || s.finish->reason == FinishReason::length);
}

// The row of `settled` that gave token `index` of the stream: as "row 2 of t1.42"; empty: none did.
std::string row_of(const Recording& r, const Settled& settled, const std::vector<SeqId>& lives, const ClientStream& s,
                   std::uint32_t index) {
  for (const Event& e : r.events) {
    const auto* launch = std::get_if<Launch>(&e.message);
    if (launch == nullptr || launch->plan->ticket != settled.result->ticket) continue;
    const std::uint32_t end = static_cast<std::uint32_t>(s.request->prompt.size()) + index;
    for (std::size_t i = 0; i < launch->plan->rows.size() && i < settled.result->rows.size(); ++i) {
      const Row& row = launch->plan->rows[i];
      if (row.position + row.n_tokens != end || settled.result->rows[i].id != s.tokens[index].id) continue;
      if (std::find(lives.begin(), lives.end(), row.seq) == lives.end()) continue;
      return fmt::format("row {} of {}: {}, mask {}", i, label(launch->plan->ticket), label(row), label(row.mask));
    }
  }
  return {};
}

// The row that gave token `index`, of one of the steps that had settled when it was delivered.
std::string source_of(const Recording& r, const ClientStream& s, std::uint32_t index) {
  std::vector<SeqId> lives;  // as what the request was opened
  for (const Event& e : r.events)
    if (const auto* opened = std::get_if<Opened>(&e.message); opened != nullptr && opened->request == s.id) lives.push_back(opened->seq);
  int steps = 0;
  for (std::size_t at = s.tokens[index].event; at > 0 && steps < kMostHeld; --at) {
    const auto* settled = std::get_if<Settled>(&r.events[at - 1].message);
    if (settled == nullptr) continue;
    ++steps;
    if (std::string row = row_of(r, *settled, lives, s, index); !row.empty()) return row;
  }
  return {};
}

// Whether the output ends with token `index`, by ids alone.
bool ends(const Recording& r, const ClientStream& s, std::uint32_t index) {
  const StopConditions& stop = s.request->stop;
  const auto has = [id = s.tokens[index].id](const std::vector<Token>& ids) { return std::find(ids.begin(), ids.end(), id) != ids.end(); };
  const bool past_min = index + 1 > stop.min_tokens || stop.min_tokens == 0;
  return past_min && (has(stop.stop_token_ids) || (!stop.ignore_eos && r.configs && has(r.configs->model.eos_ids)));
}

std::string cause_of(const Recording& r, const ClientStream& s, std::uint32_t index) {
  if (index >= s.tokens.size()) return {};
  const std::string source = source_of(r, s, index);
  if (source.empty()) return {};
  if (index > 0 && ends(r, s, index - 1))
    return "an over-run: token " + std::to_string(index - 1) + " had ended it, and this one is from " + source;
  return "from " + source;
}

std::optional<Divergence> compare(const Recording& ra, const ClientStream& a, const Recording& rb, const ClientStream& b) {
  Divergence d;
  d.a = a.id;
  d.b = b.id;
  const std::size_t n = std::min(a.tokens.size(), b.tokens.size());
  for (std::uint32_t i = 0; i < n; ++i) {
    if (a.tokens[i].id == b.tokens[i].id) continue;
    d.token = i;
    d.event_a = a.tokens[i].event;
    d.event_b = b.tokens[i].event;
    d.what = fmt::format("token {} is {} in A and {} in B", i, a.tokens[i].id, b.tokens[i].id);
    if (a.seed != b.seed && a.request->sampling.temperature > 0) d.what += fmt::format("; the seeds differ, {} and {}", a.seed, b.seed);
    d.cause = cause_of(rb, b, i);
    return d;
  }
  if (!whole(a) || !whole(b)) return {};
  d.token = static_cast<std::uint32_t>(n);
  d.event_a = a.tokens.size() > n ? a.tokens[n].event : a.finished;
  d.event_b = b.tokens.size() > n ? b.tokens[n].event : b.finished;
  if (a.tokens.size() != b.tokens.size()) {
    d.what = fmt::format("A has {} tokens and B has {}", a.tokens.size(), b.tokens.size());
    d.cause = b.tokens.size() > n ? cause_of(rb, b, d.token) : a.tokens.size() > n ? "in A " + cause_of(ra, a, d.token) : "";
    return d;
  }
  if (a.finish->reason == b.finish->reason) return {};
  d.what = fmt::format("A ends by {} and B by {}", name(a.finish->reason), name(b.finish->reason));
  return d;
}

struct Shape {
  std::array<std::uint64_t, kTypes> sent{};
  std::uint64_t steps = 0, rows = 0, fed = 0, chunks = 0, rollbacks = 0, releases = 0, refused = 0, failed = 0, opens = 0;
  std::string first_ahead;
};

Shape shape_of(const Recording& r) {
  Shape s;
  for (const Event& e : r.events) {
    if (e.head.kind != RecordKind::sent) continue;
    ++s.sent[e.head.type];
    if (const auto* launch = std::get_if<Launch>(&e.message)) {
      s.steps += launch->plan->rows.empty() ? 0 : 1;
      s.rows += launch->plan->rows.size();
      for (const Row& row : launch->plan->rows) {
        s.fed += row.source.is_feed() ? 1 : 0;
        s.chunks += row.n_tokens > 1 ? 1 : 0;
        if (row.source.is_feed() && s.first_ahead.empty())
          s.first_ahead = fmt::format("{} ({})", label(launch->plan->ticket), label(*launch->plan));
      }
      for (const Effect& effect : launch->plan->effects) {
        s.rollbacks += std::holds_alternative<Rollback>(effect) ? 1 : 0;
        s.releases += std::holds_alternative<ReleaseSeq>(effect) ? 1 : 0;
      }
    } else if (const auto* apply = std::get_if<Apply>(&e.message)) {
      s.rollbacks += std::holds_alternative<Rollback>(apply->effect) ? 1 : 0;
      s.releases += std::holds_alternative<ReleaseSeq>(apply->effect) ? 1 : 0;
    } else if (const auto* accepted = std::get_if<Accepted>(&e.message)) {
      s.refused += accepted->error.code != ErrorCode::none ? 1 : 0;
    } else if (const auto* settled = std::get_if<Settled>(&e.message)) {
      s.failed += settled->result->ok() ? 0 : 1;
    }
  }
  return s;
}

std::vector<std::string> protocol(const Recording& ra, const Recording& rb) {
  std::vector<std::string> out;
  const Shape a = shape_of(ra), b = shape_of(rb);
  const auto line = [&](const std::string& what, auto x, auto y) {
    if (x != y) out.push_back(fmt::format("{}: {} in A, {} in B", what, x, y));
  };
  if (ra.configs && rb.configs) {
    line("depth", ra.configs->scheduler.depth, rb.configs->scheduler.depth);
    line("max_batch", ra.configs->scheduler.max_batch, rb.configs->scheduler.max_batch);
    line("step_tokens", ra.configs->scheduler.step_tokens, rb.configs->scheduler.step_tokens);
    line("KV blocks", ra.configs->model.kv_blocks, rb.configs->model.kv_blocks);
    line("arithmetic", ra.configs->model.arithmetic_id, rb.configs->model.arithmetic_id);
  }
  line("build", ra.header.build, rb.header.build);
  line("steps", a.steps, b.steps);
  line("rows", a.rows, b.rows);
  line("fed rows", a.fed, b.fed);
  line("first step ahead", a.first_ahead.empty() ? "none" : a.first_ahead, b.first_ahead.empty() ? "none" : b.first_ahead);
  line("chunks of prompts", a.chunks, b.chunks);
  line("rollbacks", a.rollbacks, b.rollbacks);
  line("releases", a.releases, b.releases);
  line("refused launches", a.refused, b.refused);
  line("failed steps", a.failed, b.failed);
  for (std::uint16_t t = 1; t < kTypes; ++t) line(std::string(type_name(t)) + " messages", a.sent[t], b.sent[t]);
  return out;
}

}  // namespace

Result<DiffOutcome> diff(const Recording& a, const Recording& b) {
  if (a.header.redacted || b.header.redacted) return Error{ErrorCode::unsupported, "a redacted recording has no ids to compare"};
  DiffOutcome out;
  const ClientStreams sa = streams_of(a), sb = streams_of(b);
  for (const auto& [key, stream] : sa) {
    const auto other = sb.find(key);
    if (other == sb.end()) continue;
    ++out.requests;
    out.tokens += std::min(stream.tokens.size(), other->second.tokens.size());
    auto d = compare(a, stream, b, other->second);
    if (d && (!out.divergence || d->event_a < out.divergence->event_a)) out.divergence = std::move(d);
  }
  out.protocol = protocol(a, b);
  const auto only = [&](const char* side, const ClientStreams& x, const ClientStreams& y) {
    const auto n = std::count_if(x.begin(), x.end(), [&](const auto& s) { return y.find(s.first) == y.end(); });
    if (n != 0) out.protocol.insert(out.protocol.begin(), fmt::format("requests in {} only: {}", side, n));
  };
  only("B", sb, sa);
  only("A", sa, sb);
  return out;
}

}  // namespace troupe::actors::trace
