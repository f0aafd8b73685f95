#include "actors/dispatcher/placement.h"

#include <algorithm>

namespace troupe::actors {
namespace {

// When the candidate's work would end, with `cost` more: a before b.
bool sooner(const Placement::Candidate& a, const Placement::Candidate& b, std::uint64_t cost) {
  return (a.outstanding + cost) * b.weight < (b.outstanding + cost) * a.weight;
}

bool has_room(const Placement::Candidate& c, std::uint64_t cost) { return c.kv == 0 || c.outstanding + cost <= c.kv; }

std::uint64_t mixed(std::uint64_t h, std::uint64_t x) {
  h = (h ^ x) * 0xBF58476D1CE4E5B9ull;
  return h ^ h >> 29;
}

}  // namespace

// With the adapter's name: its blocks are nobody else's.
Placement::Prefix Placement::prefix_of(const Request& request) const {
  Prefix out;
  if (config_.affinity_bound == 0 || config_.policy != PlacementPolicy::least_work) return out;
  std::uint64_t h = 0x9E3779B97F4A7C15ull;
  for (const char c : request.adapter) h = mixed(h, static_cast<unsigned char>(c));
  for (std::size_t i = 0; i + 1 < request.prompt.size() && out.size() < kMostBlocks; ++i) {  // the last token is always computed
    h = mixed(h, request.prompt[i] + 1);
    if ((i + 1) % block_size_ == 0) out.push_back(h);
  }
  return out;
}

std::size_t Placement::matched(std::uint32_t index, const Prefix& prefix) const {
  const Cache& cache = caches_[index];
  std::size_t n = 0;
  while (n < prefix.size() && cache.at.count(prefix[n]) != 0) ++n;
  return n;
}

std::uint32_t Placement::choose(std::span<const Candidate> candidates, std::uint64_t client, std::uint64_t cost, const Prefix& prefix) {
  if (config_.policy == PlacementPolicy::round_robin) return candidates[turn_++ % candidates.size()].index;
  if (config_.policy == PlacementPolicy::pinned) {
    const auto wanted = static_cast<std::uint32_t>(client % caches_.size());
    const auto it = std::find_if(candidates.begin(), candidates.end(), [&](const Candidate& c) { return c.index >= wanted; });
    return it != candidates.end() ? it->index : candidates.front().index;
  }
  const Candidate* least = &candidates.front();
  for (const Candidate& c : candidates) {
    const bool room = has_room(c, cost);
    if (room != has_room(*least, cost) ? room : sooner(c, *least, cost)) least = &c;
  }
  const Candidate* affine = nullptr;
  std::size_t most = 0;
  for (const Candidate& c : candidates) {
    if (!has_room(c, cost) && has_room(*least, cost)) continue;
    const std::size_t n = matched(c.index, prefix);
    if (n > most || (n == most && n > 0 && sooner(c, *affine, cost))) affine = &c, most = n;
  }
  if (affine == nullptr || affine == least) return least->index;
  // By how much later it would be done there, in tokens of the affine one's.
  const std::uint64_t bound = least->outstanding * affine->weight + std::uint64_t{config_.affinity_bound} * least->weight;
  if (affine->outstanding * least->weight > bound) return least->index;
  ++affine_;
  return affine->index;
}

void Placement::placed(std::uint32_t index, const Prefix& prefix) {
  Cache& cache = caches_[index];
  for (const std::uint64_t h : prefix) {
    if (const auto it = cache.at.find(h); it != cache.at.end()) {
      cache.order.splice(cache.order.begin(), cache.order, it->second);
      continue;
    }
    cache.order.push_front(h);
    cache.at.emplace(h, cache.order.begin());
    if (cache.at.size() > config_.affinity_blocks) {
      cache.at.erase(cache.order.back());
      cache.order.pop_back();
    }
  }
}

void Placement::forget(std::uint32_t index) { caches_[index] = {}; }

}  // namespace troupe::actors
