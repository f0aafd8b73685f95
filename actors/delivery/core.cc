#include "actors/delivery/core.h"

#include <utility>

namespace troupe::actors {

void DeliveryCore::open(const RequestId& id, std::uint32_t max_tokens) {
  Open& o = open_[id];
  o = {};
  if (config_.keeps_tokens) o.tokens.reserve(max_tokens);
}

bool DeliveryCore::take(const TokenEvent& event) {
  const auto it = open_.find(event.request);
  if (it == open_.end() || !counts(event.attempt, it->second)) return ++stats_.late, false;
  Open& o = it->second;
  if (event.index != o.next) return ++stats_.repeated, false;
  ++o.next;
  if (config_.keeps_tokens) o.tokens.push_back(event.id);
  ++stats_.tokens;
  return true;
}

bool DeliveryCore::take(const Finish& finish) {
  const auto it = open_.find(finish.request);
  if (it == open_.end() || !counts(finish.attempt, it->second)) return ++stats_.late, false;
  open_.erase(it);
  ++stats_.ends;
  return true;
}

void DeliveryCore::on(const Reclaim& m, TimeNs, DeliveryOutbox& out) {
  Reclaimed answer;
  for (const Placed& p : m.requests) {
    ReclaimedRequest& r = answer.requests.emplace_back();
    r.id = p.id;
    r.attempt = p.attempt;
    ++stats_.reclaimed;
    const auto it = open_.find(p.id);
    r.ended = it == open_.end();
    if (r.ended) continue;
    it->second.attempt = p.attempt;
    r.output = it->second.tokens;
  }
  out.push(std::move(answer));
}

}  // namespace troupe::actors
