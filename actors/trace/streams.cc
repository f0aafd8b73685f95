#include "actors/trace/streams.h"

#include <algorithm>
#include <utility>

namespace troupe::actors::trace {
namespace {

bool contains(const std::vector<Token>& ids, Token id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); }

}  // namespace

Streams::Streams(const ModelInfo& model, bool from_start, bool tokens) : model_(model), from_start_(from_start), compare_(tokens) {}

void Streams::broken(std::string what) {
  if (violation_.empty()) violation_ = std::move(what);
}

std::uint64_t Streams::live() const {
  return static_cast<std::uint64_t>(std::count_if(streams_.begin(), streams_.end(), [](const auto& s) { return !s.second.ended; }));
}

void Streams::admitted(const Admit& m, bool first) {
  if (!first) return;
  const auto [it, fresh] = streams_.try_emplace(m.id);
  if (!fresh) broken("R5: " + label(m.id) + " was accepted twice");
  it->second.request = m.request;
  // Moved here from another replica: what its client has does not come again.
  for (const Token id : m.output) {
    ++it->second.tokens;
    if (compare_) advance(it->second, id);
  }
}

void Streams::opened(const Opened& m) {
  if (m.error.code != ErrorCode::none) return;
  requests_[m.seq] = m.request;
  epochs_[m.seq] = 0;
}

void Streams::applied(const Effect& effect) {
  if (const auto* e = std::get_if<Rollback>(&effect)) {
    const auto it = epochs_.find(e->seq);
    if (it != epochs_.end()) it->second = e->epoch;
  } else if (const auto* e = std::get_if<ReleaseSeq>(&effect)) {
    over(e->seq);
  } else if (const auto* e = std::get_if<SaveSequenceState>(&effect)) {
    over(e->seq);  // what is in flight for it is disowned
  }
}

void Streams::over(SeqId seq) {
  requests_.erase(seq);
  epochs_.erase(seq);
}

void Streams::launched(const StepPlan& plan) {
  for (const Effect& e : plan.effects) applied(e);
  Step& step = steps_[plan.ticket] = {plan.stream};
  std::vector<Row>& rows = step.rows;
  for (const troupe::Row& r : plan.rows)
    rows.push_back({r.seq, r.epoch, r.position + r.n_tokens, r.readback == RowReadback::argmax || r.readback == RowReadback::sample});
}

void Streams::handled() {
  told();
  held_sources_ = std::exchange(sources_, {});
  held_ended_ = std::exchange(must_have_ended_, {});
}

void Streams::told() {
  for (const RequestId& id : held_ended_) {
    const auto it = streams_.find(id);
    if (it != streams_.end() && !it->second.ended) broken("R5: " + label(id) + " is over, and its client was not told");
  }
}

void Streams::settled(const Settled& m) {
  if (m.result->error.code == ErrorCode::device_lost) lost_ = true;
  const auto step = steps_.find(m.result->ticket);
  if (step == steps_.end()) return;
  for (std::size_t i = 0; m.result->ok() && i < step->second.rows.size() && i < m.result->rows.size(); ++i) {
    const Row& row = step->second.rows[i];
    const auto request = requests_.find(row.seq);
    if (!row.device_chooses || request == requests_.end()) continue;
    const auto stream = streams_.find(request->second);
    if (stream == streams_.end() || row.end < stream->second.request->prompt.size()) continue;
    const auto index = static_cast<std::uint32_t>(row.end - stream->second.request->prompt.size());
    sources_[request->second].push_back({m.result->rows[i].id, index, false, epochs_[row.seq] != row.epoch});
  }
  // Those of a stream settle in order: an older one was refused.
  const Ticket last = step->first;
  const std::uint32_t stream = step->second.stream;
  std::erase_if(steps_, [&](const auto& s) { return s.first <= last && s.second.stream == stream; });
}

void Streams::sampled(const Sampled& m) {
  for (const SampledRow& row : m.batch->rows) sources_[row.request].push_back({row.id, 0, true, false});
}

void Streams::delivered(const TokenBatch& batch, const Witness& witness) {
  for (const TokenEvent& e : batch.events) token(e);
  for (const Finish& f : batch.finishes) {
    const auto it = streams_.find(f.request);
    if (it == streams_.end()) {
      if (from_start_) broken("R5: " + label(f) + ", and it was never accepted");
      continue;
    }
    if (std::exchange(it->second.ended, true)) broken("R5: a second end of " + label(f.request));
    const bool by_row = f.error.code == ErrorCode::device_failed || f.error.code == ErrorCode::poisoned ||
                        f.error.code == ErrorCode::stale_feed || f.error.code == ErrorCode::no_token;
    if (from_start_ && f.reason == FinishReason::error && by_row && !lost_ && !halted_ && witness.hits(f.request) < 2)
      broken("R7: " + label(f.request) + " failed, and " + std::to_string(witness.hits(f.request)) + " faults met it: " + f.error.what);
  }
}

void Streams::token(const TokenEvent& e) {
  ++n_tokens_;
  const auto it = streams_.find(e.request);
  if (it == streams_.end()) {
    if (from_start_) broken("R5: a token of " + label(e.request) + ", which was never accepted");
    return;
  }
  Stream& s = it->second;
  const std::string what = "token " + std::to_string(e.index) + " of " + label(e.request);
  if (s.ended) broken("R5: " + what + " after its end");
  if (e.index != s.tokens) broken("R5: " + what + " where " + std::to_string(s.tokens) + " was due");
  if (s.over) broken("R2: " + what + " comes after the one that ended it: an over-run was committed");
  if (s.tokens >= s.request->stop.max_tokens) broken("R2: " + what + ", and it asked for " + std::to_string(s.request->stop.max_tokens));
  if (compare_) check_source(e, s);
  ++s.tokens;
  if (compare_) advance(s, e.id);
}

void Streams::check_source(const TokenEvent& e, const Stream& s) {
  const std::string what = "token " + std::to_string(e.index) + " of " + label(e.request) + " (id " + std::to_string(e.id) + ")";
  const StopConditions& stop = s.request->stop;
  if (e.index < stop.min_tokens && (contains(stop.stop_token_ids, e.id) || (!stop.ignore_eos && contains(model_.eos_ids, e.id))))
    broken("R2: " + what + " ends the request before its min_tokens");
  const auto& think = s.request->think;
  if (s.closed_thinking && (e.id == think->bar_a || e.id == think->bar_b))
    broken("R2: " + what + " is barred since the thinking block was closed");
  bool any = false, disowned = false;
  for (const auto* now : {&held_sources_, &sources_}) {
    const auto sources = now->find(e.request);
    if (sources == now->end()) continue;
    any = true;
    for (const Source& source : sources->second) {
      if (source.id != e.id || (!source.any_index && source.index != e.index)) continue;
      if (!source.disowned) return;
      disowned = true;
    }
  }
  broken("R2: " + what +
         (disowned ? " comes from a row that was disowned"
          : any    ? " is not what its row gave"
                   : " comes from no row of a step that settled now"));
}

void Streams::advance(Stream& s, Token id) {
  const Request& q = *s.request;
  if (q.think && id == q.think->close) s.closed_thinking = true;
  if (q.stop.min_tokens != 0 && s.tokens <= q.stop.min_tokens) return;
  s.over = contains(q.stop.stop_token_ids, id) || (!q.stop.ignore_eos && contains(model_.eos_ids, id));
  if (!model_.tokens || q.stop.stop.empty()) return;
  s.text += model_.tokens->text(id);
  std::size_t longest = 0;
  for (const std::string& text : q.stop.stop) {
    s.over = s.over || (!text.empty() && s.text.find(text) != std::string::npos);
    longest = std::max(longest, text.size());
  }
  if (s.text.size() > longest) s.text.erase(0, s.text.size() - longest);
}

void Streams::ended(const Ended& m) {
  for (const Placed& p : m.requests) must_have_ended_.push_back(p.id);
}

void Streams::finish() {
  handled();
  told();
  for (const auto& [id, s] : streams_)
    if (!s.ended) broken("R5: " + label(id) + " was accepted and has no end");
}

}  // namespace troupe::actors::trace
