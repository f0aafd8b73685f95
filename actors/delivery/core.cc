#include "actors/delivery/core.h"

#include <utility>

namespace troupe::actors {

void DeliveryCore::open(const RequestId& id, std::uint32_t max_tokens) {
  Open& o = open_[id];
  o = {};
  if (config_.reclaims) o.tokens.reserve(max_tokens);
}

bool DeliveryCore::take(const TokenEvent& event) {
  const auto it = open_.find(event.request);
  if (it == open_.end() || !counts(event.attempt, it->second)) return ++stats_.late, false;
  Open& o = it->second;
  if (event.index != o.next) return ++stats_.repeated, false;
  ++o.next;
  if (config_.reclaims) o.tokens.push_back(event.id);
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

void DeliveryCore::on(const Deliver& m, TimeNs, DeliveryOutbox& out) {
  const TokenBatch& batch = *m.batch;
  events_.clear();
  for (std::uint32_t i = 0; i < batch.events.size(); ++i)
    if (take(batch.events[i])) events_.push_back(i);
  end(batch.finishes, out);
}

void DeliveryCore::on(const EndRequests& m, TimeNs, DeliveryOutbox& out) {
  events_.clear();
  end(m.finishes, out);
}

void DeliveryCore::end(const std::vector<Finish>& finishes, DeliveryOutbox& out) {
  finishes_.clear();
  for (std::uint32_t i = 0; i < finishes.size(); ++i)
    if (take(finishes[i])) finishes_.push_back(i);
  if (finishes_.empty() || !config_.reclaims) return;
  Delivered told;
  for (const std::uint32_t i : finishes_) told.requests.push_back({finishes[i].request, finishes[i].attempt});
  out.push(std::move(told));
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
