// What a simulation met: how often each path was taken and each fault struck.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace troupe::sim {

enum class Path : std::uint8_t {
  // What clients do
  accepted,
  refused_live_id,
  overloaded,
  refused_draining,
  cancelled_waiting,
  cancelled_running,
  cancel_too_late,
  deadlines,
  drains,
  // How requests end
  ended_stop,
  ended_length,
  ended_error,
  // Run-ahead
  steps,
  steps_ahead,
  prefill_steps,  // on a stream of their own
  fed_rows,
  overruns,
  redone_rows,
  stale_results,
  host_chosen,
  device_sampled,
  // Blocks, slots, ring
  released_now,
  released_at_fence,
  kv_refused,
  kv_waits,
  fence_waits,
  preemptions,
  resumes,
  ring_waits,
  spills,
  spill_failures,
  spills_dropped,
  restores,
  restore_failures,
  cancels_while_saving,
  cancels_while_restoring,
  prefix_hits,
  prefix_blocks,
  prefix_published,
  prefix_reclaimed,
  behind_window,
  behind_window_fenced,
  // Faults, and what became of them
  step_failed_early,
  step_failed_late,
  nan_rows,
  event_errors,
  readback_errors,
  enqueue_errors,
  half_enqueued,
  device_lost,
  step_timeouts,
  write_errors,
  disk_full,
  read_errors,
  damaged_files,
  copy_errors,
  copies_ordered,
  mark_errors,
  retries,
  failed_rows,
  count,
};

inline const char* name(Path path) {
  static constexpr const char* names[] = {"accepted",
                                          "refused_live_id",
                                          "overloaded",
                                          "refused_draining",
                                          "cancelled_waiting",
                                          "cancelled_running",
                                          "cancel_too_late",
                                          "deadlines",
                                          "drains",
                                          "ended_stop",
                                          "ended_length",
                                          "ended_error",
                                          "steps",
                                          "steps_ahead",
                                          "prefill_steps",
                                          "fed_rows",
                                          "overruns",
                                          "redone_rows",
                                          "stale_results",
                                          "host_chosen",
                                          "device_sampled",
                                          "released_now",
                                          "released_at_fence",
                                          "kv_refused",
                                          "kv_waits",
                                          "fence_waits",
                                          "preemptions",
                                          "resumes",
                                          "ring_waits",
                                          "spills",
                                          "spill_failures",
                                          "spills_dropped",
                                          "restores",
                                          "restore_failures",
                                          "cancels_while_saving",
                                          "cancels_while_restoring",
                                          "prefix_hits",
                                          "prefix_blocks",
                                          "prefix_published",
                                          "prefix_reclaimed",
                                          "behind_window",
                                          "behind_window_fenced",
                                          "step_failed_early",
                                          "step_failed_late",
                                          "nan_rows",
                                          "event_errors",
                                          "readback_errors",
                                          "enqueue_errors",
                                          "half_enqueued",
                                          "device_lost",
                                          "step_timeouts",
                                          "write_errors",
                                          "disk_full",
                                          "read_errors",
                                          "damaged_files",
                                          "copy_errors",
                                          "copies_ordered",
                                          "mark_errors",
                                          "retries",
                                          "failed_rows"};
  static_assert(sizeof names / sizeof *names == static_cast<std::size_t>(Path::count));
  return names[static_cast<std::size_t>(path)];
}

class Coverage {
 public:
  void add(Path path, std::uint64_t n = 1) { counts_[static_cast<std::size_t>(path)] += n; }
  std::uint64_t of(Path path) const { return counts_[static_cast<std::size_t>(path)]; }
  std::uint64_t operator[](Path path) const { return counts_[static_cast<std::size_t>(path)]; }
  void add(const Coverage& other) {
    for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
  }
  // The names of the paths that were never taken, with a space between.
  std::string missing() const {
    std::string out;
    for (std::size_t i = 0; i < counts_.size(); ++i)
      if (counts_[i] == 0) out += (out.empty() ? "" : " ") + std::string(name(static_cast<Path>(i)));
    return out;
  }

 private:
  std::array<std::uint64_t, static_cast<std::size_t>(Path::count)> counts_{};
};

}  // namespace troupe::sim
