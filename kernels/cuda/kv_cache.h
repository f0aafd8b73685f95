// The addresses of the paged KV cache in device code (families.h says its layout), two BF16 in a word.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"

namespace troupe::kernels {

// The key of a position; its value lies kv.block_size * kv.head_dim / 2 words further.
__device__ inline std::uint32_t* key_words(const KvCache& kv, const std::uint32_t* table, std::uint32_t layer, std::uint32_t head,
                                           std::uint32_t position) {
  const std::size_t block = table[position / kv.block_size] - 1;
  const std::size_t vector =
      (((layer * std::size_t{kv.n_blocks} + block) * kv.n_kv_heads + head) * 2 * kv.block_size) + position % kv.block_size;
  return static_cast<std::uint32_t*>(kv.data) + vector * (kv.head_dim / 2);
}

__device__ inline const std::uint32_t* table_of(const BlockTables& tables, std::uint32_t slot) {
  return tables.entries + static_cast<std::size_t>(slot) * tables.blocks_per_slot;
}

}  // namespace troupe::kernels
