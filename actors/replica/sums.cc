#include "actors/replica/sums.h"

#include <array>
#include <bit>

namespace troupe::actors {

// All of it are counts.
SchedulerStats sum(const SchedulerStats& a, const SchedulerStats& b) {
  using Numbers = std::array<std::uint64_t, sizeof(SchedulerStats) / sizeof(std::uint64_t)>;
  auto x = std::bit_cast<Numbers>(a);
  const auto y = std::bit_cast<Numbers>(b);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  return std::bit_cast<SchedulerStats>(x);
}

DeviceFacts sum(const DeviceFacts& a, const DeviceFacts& b) {
  DeviceFacts out = a;
  out.total_blocks += b.total_blocks;
  out.free_blocks += b.free_blocks;
  out.used_blocks += b.used_blocks;
  out.cached_blocks += b.cached_blocks;
  out.fenced_blocks += b.fenced_blocks;
  out.total_slots += b.total_slots;
  out.free_slots += b.free_slots;
  out.ring_slots += b.ring_slots;
  out.free_ring_slots += b.free_ring_slots;
  out.in_flight += b.in_flight;
  out.has_ssm = a.has_ssm || b.has_ssm;
  out.ssm_used += b.ssm_used;
  out.ssm_total += b.ssm_total;
  return out;
}

}  // namespace troupe::actors
