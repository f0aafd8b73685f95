#include "actors/trace/front_rules.h"

#include <utility>

namespace troupe::actors::trace {

// Of a recording that begins in the middle, a request may have been accepted before.
FrontRules::Stream* FrontRules::find(const RequestId& id) {
  const auto it = streams_.find(id);
  return it == streams_.end() ? nullptr : &it->second;
}

void FrontRules::accepted(const SubmitReply& m) {
  if (m.error.code != ErrorCode::none) return;
  if (std::exchange(streams_[m.request].accepted, true)) broken("R5: " + label(m.request) + " was accepted twice");
}

// The first one comes before the answer that says that it was accepted.
void FrontRules::admitted(const Admit& m) {
  if (fenced_.count({m.replica.index, m.replica.incarnation}) != 0) {
    broken("R5: " + label(m.id) + " goes to " + label(m.replica) + ", which is fenced");
  }
  if (m.attempt == 0) streams_.try_emplace(m.id);
  const Stream* s = find(m.id);
  if (s == nullptr) {
    if (from_start_) broken("R5: " + label(m.id) + " is moved, and was never accepted");
    return;
  }
  if (m.attempt != s->attempt) {
    broken("R5: attempt " + std::to_string(m.attempt) + " of " + label(m.id) + " begins, and " + std::to_string(s->attempt) + " counts");
  }
  if (s->ended) broken("R5: " + label(m.id) + " has ended, and is placed again");
  if (m.output.size() != s->tokens.size() || (compare_ && m.output != s->tokens)) {
    broken("R5: " + label(m.id) + " goes on from " + std::to_string(m.output.size()) + " tokens, and its client has " +
           std::to_string(s->tokens.size()));
  }
}

void FrontRules::reclaim(const Reclaim& m) {
  for (const Placed& p : m.requests) {
    Stream* s = find(p.id);
    if (s == nullptr) continue;
    if (p.attempt <= s->attempt) broken("R5: " + label(p.id) + " is reclaimed for an attempt that it has had");
    s->attempt = p.attempt;
  }
}

void FrontRules::reclaimed(const Reclaimed& m) {
  for (const ReclaimedRequest& r : m.requests) {
    const Stream* s = find(r.id);
    if (s == nullptr || r.ended) continue;
    if (r.output.size() != s->tokens.size() || (compare_ && r.output != s->tokens)) {
      broken("R5: " + std::to_string(r.output.size()) + " tokens of " + label(r.id) + " are said to be delivered, and " +
             std::to_string(s->tokens.size()) + " are");
    }
  }
}

void FrontRules::delivered(const TokenBatch& batch) {
  for (const TokenEvent& e : batch.events) {
    Stream* s = find(e.request);
    if (s == nullptr || s->ended || e.attempt != s->attempt) continue;  // late: it is dropped
    if (e.index != s->tokens.size()) {
      broken("R5: token " + std::to_string(e.index) + " of " + label(e.request) + " where " + std::to_string(s->tokens.size()) +
             " was due");
    }
    s->tokens.push_back(e.id);
    ++n_tokens_;
  }
  for (const Finish& f : batch.finishes) {
    Stream* s = find(f.request);
    if (s != nullptr && f.attempt == s->attempt) s->ended = true;
  }
}

void FrontRules::ended(const EndRequests& m) {
  for (const Finish& f : m.finishes) {
    Stream* s = find(f.request);
    if (s != nullptr && f.attempt == s->attempt) s->ended = true;
  }
}

}  // namespace troupe::actors::trace
