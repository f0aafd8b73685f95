// The router's books in numbers (seed: DeviceFacts). Rides on every ticket and result; never asks the device.
#pragma once

#include <cstdint>
#include <string>

namespace troupe {

// Every block is in exactly one class (R8): free + used + cached + fenced == total.
struct DeviceFacts {
  std::uint32_t total_blocks = 0;
  std::uint32_t free_blocks = 0;
  std::uint32_t used_blocks = 0;
  std::uint32_t cached_blocks = 0;  // prefix cache, idle
  std::uint32_t fenced_blocks = 0;  // released, waiting for the last step that names them (R3)
  std::uint32_t total_slots = 0;
  std::uint32_t free_slots = 0;
  std::uint32_t ring_slots = 0;
  std::uint32_t free_ring_slots = 0;
  std::uint32_t in_flight = 0;  // tickets
  bool has_ssm = false;
  std::uint32_t ssm_total = 0;      // versions of recurrent state, if has_ssm
  std::uint32_t ssm_used = 0;       // of those: sequences', released ones at their fence included
  std::uint32_t ssm_snapshots = 0;  // kept for prefix hits, and nobody's now: given up when a sequence needs them
  std::uint32_t ssm_sequences = 0;  // sequences that can be opened with the rest
  bool operator==(const DeviceFacts&) const = default;
};

template <class I>
auto inspect(I& f, DeviceFacts& x) {
  return f(x.total_blocks, x.free_blocks, x.used_blocks, x.cached_blocks, x.fenced_blocks, x.total_slots, x.free_slots, x.ring_slots,
           x.free_ring_slots, x.in_flight, x.has_ssm, x.ssm_total, x.ssm_used, x.ssm_snapshots, x.ssm_sequences);
}

std::string label(const DeviceFacts& x);  // "facts{free=10/64, fenced=2, in_flight=1}"

}  // namespace troupe
