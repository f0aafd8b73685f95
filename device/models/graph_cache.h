// Which captured graphs a model keeps: one per size of a decode step, a bounded number of them. A graph is pinned by the steps
// that replay it until they have settled, and never leaves while it is pinned; else the one that was used longest ago does.
//
// Deterministic; nothing here calls the driver. Nothing is allocated after the constructor. Thread: the stream actor's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "device/driver.h"
#include "messages/ids.h"

namespace troupe::device {

class GraphCache {
 public:
  // `steps`: most steps in flight.
  GraphCache(std::size_t capacity, std::size_t steps);

  // The graph of that size, pinned for the step from now on. 0: there is none, or more steps are in flight than were said.
  Graph pin(std::uint32_t size, Ticket step);
  // Makes room for one more. 0: there is room. A graph: it has left, and is the caller's to destroy. nullopt: every one is pinned.
  std::optional<Graph> make_room();
  // Needs room, and no graph of that size.
  void add(std::uint32_t size, Graph graph);
  // The step no longer pins anything.
  void settled(Ticket step);

  std::size_t size() const { return graphs_.size(); }
  // All leave, pinned or not.
  std::vector<Graph> take_all();

 private:
  struct Entry {
    std::uint32_t size = 0;
    Graph graph = 0;
    std::uint64_t used = 0;
  };
  struct Pin {
    Ticket step;
    Graph graph = 0;
  };
  bool pinned(Graph graph) const;

  std::size_t capacity_;
  std::vector<Entry> graphs_;
  std::vector<Pin> pins_;  // by step in flight
  std::uint64_t uses_ = 0;
};

}  // namespace troupe::device
