// When a replica that was lost is started again: after a pause that doubles with each try within the window, up to a limit;
// with too many tries in it the replica is given up.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>

#include "messages/ids.h"

namespace troupe::actors {

struct SupervisionConfig {
  std::uint32_t max_restarts = 5;  // within `restart_window`; 0 = a replica that is lost stays so
  TimeNs restart_window = 600'000'000'000;
  TimeNs backoff = 500'000'000;  // before the first try; doubled for each in the window
  TimeNs max_backoff = 30'000'000'000;
  TimeNs start_timeout = 600'000'000'000;    // from StartReplica to ReplicaUp, adapters included
  TimeNs report_interval = 1'000'000'000;    // of asking a replica that has requests
  TimeNs report_timeout = 10'000'000'000;    // it is lost if it has not answered by then,
  TimeNs progress_timeout = 90'000'000'000;  // or if for so long it has requests and settles no step (R10)
};

// Of a replica on another machine: to start it is to connect, which costs nothing, and machines come back; so it is tried
// every few seconds for as long as it takes.
inline SupervisionConfig for_remote(SupervisionConfig c) {
  constexpr TimeNs kMost = 5'000'000'000;
  c.max_restarts = UINT32_MAX;
  c.max_backoff = std::min(c.max_backoff, kMost);
  return c;
}

class Restarts {
 public:
  explicit Restarts(const SupervisionConfig& config) : config_(config) {}

  // It was lost, or did not start: when to try next; none: it is given up.
  std::optional<TimeNs> next(TimeNs now) {
    while (!tries_.empty() && tries_.front() + config_.restart_window <= now) tries_.pop_front();
    if (tries_.size() >= config_.max_restarts) return std::nullopt;
    TimeNs wait = config_.backoff;
    for (std::size_t i = 0; i < tries_.size() && wait < config_.max_backoff; ++i) wait *= 2;
    tries_.push_back(now);
    return now + std::min(wait, config_.max_backoff);
  }
  std::uint32_t tries() const { return static_cast<std::uint32_t>(tries_.size()); }
  void forgive() { tries_.clear(); }

 private:
  SupervisionConfig config_;
  std::deque<TimeNs> tries_;  // at most max_restarts, and those of one window
};

}  // namespace troupe::actors
