// Attention of one token's query heads that share a KV head, over the paged KV cache (Kernels::attention). Pure but for
// `scores`; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/host/kv_layout.h"
#include "kernels/host/target.h"

namespace troupe::kernels {

struct AttentionHead {
  const void* kv = nullptr;        // element 0 of this layer and KV head in block 0
  std::size_t block_elements = 0;  // from one block to the next
  std::size_t k_stride = 0, v_stride = 0, v_begin = 0;
  std::uint32_t block_size = 0;
  std::uint32_t head_dim = 0;
  const std::uint32_t* table = nullptr;  // block + 1
  std::uint32_t first = 0;               // the first position that is read,
  std::uint32_t position = 0;            // and the last
  std::uint32_t group = 0;               // query heads
  const float* q = nullptr;              // [group][head_dim]
  float* out = nullptr;                  // [group][head_dim]
  float scale = 1.0f;
  float* scores = nullptr;        // scratch [min(group, 4)][scores_stride]
  std::size_t scores_stride = 0;  // >= round_up(position + 1, block_size) + 16
};

using Attention = void (*)(const AttentionHead& head);
Attention attention(Target target, bool half);  // half: binary16 cache, else F32

}  // namespace troupe::kernels
