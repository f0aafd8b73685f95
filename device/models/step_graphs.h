// The layers of steps as graphs, one per size. When a size first comes its kernels are launched, and then captured: a kernel that was
// never launched may have to be loaded, which a capture is no place for. From then on the graph is replayed; where there is none the
// kernels are launched. All that changes between two steps of a size is in device memory.
//
// Thread: the stream actor's. Nothing is allocated but at captures.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device/driver.h"
#include "device/models/graph_cache.h"
#include "messages/error.h"
#include "messages/ids.h"

namespace troupe::device {

struct GraphFigures {
  std::uint64_t captured = 0;
  std::uint64_t replayed = 0;
  std::uint64_t evicted = 0;
  std::uint64_t failed = 0;  // captures
};

class StepGraphs {
 public:
  // The driver must outlive it. `most` graphs are kept; `flights`: steps in flight.
  StepGraphs(Driver& driver, std::size_t most, std::size_t flights) : driver_(driver), cache_(most, flights) {}
  StepGraphs(const StepGraphs&) = delete;
  StepGraphs& operator=(const StepGraphs&) = delete;
  ~StepGraphs();

  // Enqueues what `launch` launches on the stream: by the graph of that size, which the step of `ticket` uses until it has settled,
  // or by launch() itself. Errors: launch()'s, and the driver's of a graph that is there; one of a capture only if the device is lost.
  template <class F>
  Result<void> run(std::uint32_t size, Ticket ticket, Stream stream, F&& launch) {
    if (const Graph graph = cache_.pin(size, ticket); graph != 0) {
      ++figures_.replayed;
      return driver_.graph_launch(graph, stream);
    }
    TROUPE_TRY(launch());
    TROUPE_TRY(const bool begun, begin(stream));
    return begun ? end(size, stream, launch()) : success();
  }
  void settled(Ticket ticket) { cache_.settled(ticket); }
  // The stream they were captured on is gone.
  void clear();

  const GraphFigures& figures() const { return figures_; }

 private:
  // Whether a capture has begun. Errors of both: the device is lost.
  Result<bool> begin(Stream stream);
  Result<void> end(std::uint32_t size, Stream stream, const Result<void>& launched);
  Result<void> refused(const Error& error);
  void drop(Graph graph);

  Driver& driver_;
  GraphCache cache_;
  std::vector<Graph> left_over_;  // the driver did not take them back
  GraphFigures figures_;
};

}  // namespace troupe::device
