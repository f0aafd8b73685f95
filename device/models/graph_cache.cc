#include "device/models/graph_cache.h"

#include <algorithm>

namespace troupe::device {

GraphCache::GraphCache(std::size_t capacity, std::size_t steps) : capacity_(capacity) {
  graphs_.reserve(capacity);
  pins_.reserve(steps);
}

Graph GraphCache::pin(std::uint32_t size, Ticket step) {
  if (pins_.size() == pins_.capacity()) return 0;
  for (Entry& e : graphs_) {
    if (e.size != size) continue;
    e.used = ++uses_;
    pins_.push_back({step, e.graph});
    return e.graph;
  }
  return 0;
}

bool GraphCache::pinned(Graph graph) const {
  return std::any_of(pins_.begin(), pins_.end(), [&](const Pin& p) { return p.graph == graph; });
}

std::optional<Graph> GraphCache::make_room() {
  if (graphs_.size() < capacity_) return Graph{0};
  auto oldest = graphs_.end();
  for (auto e = graphs_.begin(); e != graphs_.end(); ++e) {
    if (!pinned(e->graph) && (oldest == graphs_.end() || e->used < oldest->used)) oldest = e;
  }
  if (oldest == graphs_.end()) return std::nullopt;
  const Graph graph = oldest->graph;
  graphs_.erase(oldest);
  return graph;
}

void GraphCache::add(std::uint32_t size, Graph graph) { graphs_.push_back({size, graph, ++uses_}); }

void GraphCache::settled(Ticket step) {
  std::erase_if(pins_, [&](const Pin& p) { return p.step == step; });
}

std::vector<Graph> GraphCache::take_all() {
  std::vector<Graph> out;
  for (const Entry& e : graphs_) out.push_back(e.graph);
  graphs_.clear();
  pins_.clear();
  return out;
}

}  // namespace troupe::device
