// What lives with several replicas met, by name: each is above 0 over enough seeds, or the seeds say little.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/world.h"

namespace troupe::sim {

using ReplicaCounts = std::vector<std::pair<const char*, std::uint64_t>>;

inline ReplicaCounts replica_counts(World& w) {
  const actors::DispatcherStats& d = w.dispatcher().stats();
  const actors::DeliveryStats& t = w.delivery().stats();
  std::uint64_t taken_over = 0, other = 0, drained = 0;
  for (const auto& part : w.parts()) taken_over += part->scheduler.stats().taken_over;
  for (const Finish& f : w.finishes()) other += f.other_arithmetic ? 1 : 0;
  for (const ReplicaAnswer& a : w.replica_answers()) drained += a.error.code == ErrorCode::none ? 1 : 0;
  ReplicaCounts out = {{"replicas_lost", d.lost},
                       {"replicas_silent", d.silent},
                       {"replicas_stuck", d.stuck},
                       {"replicas_started", d.started},
                       {"replicas_given_up", d.given_up},
                       {"replicas_drained_or_put_back", drained},
                       {"requests_moved", d.moved},
                       {"requests_moved_with_output", d.moved_with_output},
                       {"requests_taken_over", taken_over},
                       {"requests_over_when_reclaimed", d.ended_when_reclaimed},
                       {"requests_ended_by_the_dispatcher", d.ended_here},
                       {"requests_queued", d.queued},
                       {"requests_refused_unavailable", d.unavailable},
                       {"requests_on_two_arithmetics", other},
                       {"messages_of_fenced_replicas", d.late},
                       {"events_of_attempts_that_were_over", t.late}};
  if (w.lora_core().stats().loaded > 0 || d.rolled > 0)
    out.insert(out.end(), {{"commands_rolled", d.rolled}, {"commands_rolled_back", d.undone}, {"adapters_replayed", d.replayed}});
  return out;
}

class ReplicaTotals {
 public:
  template <class Outcome>
  void add(const Outcome& o) {
    for (const auto& [name, n] : o.replicas) {
      const auto it = std::find_if(totals_.begin(), totals_.end(), [&, name = name](const auto& t) { return t.first == name; });
      (it == totals_.end() ? totals_.emplace_back(name, 0) : *it).second += n;
    }
  }
  std::string text() const {
    std::string out;
    for (const auto& [name, n] : totals_)
      out += std::string(12 - std::min<std::size_t>(12, std::to_string(n).size()), ' ') + std::to_string(n) + "  " + name + "\n";
    return out;
  }
  std::string missing() const {
    std::string out;
    for (const auto& [name, n] : totals_)
      if (n == 0) out += (out.empty() ? "" : " ") + name;
    return out;
  }

 private:
  std::vector<std::pair<std::string, std::uint64_t>> totals_;
};

}  // namespace troupe::sim
