#include "device/models/step_graphs.h"

#include <optional>

namespace troupe::device {

namespace {

constexpr std::uint64_t kMostFailedCaptures = 3;  // then no more are tried

}  // namespace

StepGraphs::~StepGraphs() {
  for (const Graph graph : cache_.take_all()) (void)driver_.destroy_graph(graph);
  for (const Graph graph : left_over_) (void)driver_.destroy_graph(graph);
}

void StepGraphs::clear() {
  for (const Graph graph : cache_.take_all()) drop(graph);
}

Result<bool> StepGraphs::begin(Stream stream) {
  if (figures_.failed >= kMostFailedCaptures) return false;
  const std::optional<Graph> evicted = cache_.make_room();
  if (!evicted) return false;
  if (*evicted != 0) {
    ++figures_.evicted;
    drop(*evicted);
  }
  if (auto begun = driver_.graph_capture_begin(stream); !begun) {
    TROUPE_TRY(refused(begun.error()));
    return false;
  }
  return true;
}

Result<void> StepGraphs::end(std::uint32_t size, Stream stream, const Result<void>& launched) {
  auto graph = driver_.graph_capture_end(stream);
  if (!graph) return refused(graph.error());
  if (!launched) {
    drop(graph.value());
    return refused(launched.error());
  }
  ++figures_.captured;
  cache_.add(size, graph.value());
  return success();
}

Result<void> StepGraphs::refused(const Error& error) {
  ++figures_.failed;
  if (error.code == ErrorCode::device_lost) return error;
  return success();
}

void StepGraphs::drop(Graph graph) {
  if (!driver_.destroy_graph(graph)) left_over_.push_back(graph);
}

}  // namespace troupe::device
