#include "actors/replica/sums.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

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

Result<ModelInfo> common(ModelInfo a, const ModelInfo& b) {
  if (a.name != b.name || a.architecture != b.architecture || a.vocab_size != b.vocab_size || a.n_layers != b.n_layers ||
      a.context_length != b.context_length || a.block_size != b.block_size || a.window != b.window || a.eos_ids != b.eos_ids) {
    return Error{ErrorCode::bad_request,
                 "the replicas have different models (" + label(a) + " and " + label(b) + "): give all of them one"};
  }
  a.kv_blocks = std::min(a.kv_blocks, b.kv_blocks);
  a.n_slots = std::min(a.n_slots, b.n_slots);
  a.max_depth = std::min(a.max_depth, b.max_depth);
  a.max_rows = std::min(a.max_rows, b.max_rows);
  a.max_step_tokens = std::min(a.max_step_tokens, b.max_step_tokens);
  a.max_logits_rows = std::min(a.max_logits_rows, b.max_logits_rows);
  a.supports_device_sampling = a.supports_device_sampling && b.supports_device_sampling;
  a.max_sample_words = std::min(a.max_sample_words, b.max_sample_words);
  a.max_loras = std::min(a.max_loras, b.max_loras);
  a.max_lora_rank = std::min(a.max_lora_rank, b.max_lora_rank);
  return a;
}

}  // namespace troupe::actors
