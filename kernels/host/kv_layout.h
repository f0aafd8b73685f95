// Where a position's key and value lie in the host's KV cache, whose elements are F32 (exact) or binary16.
//
// [layer][block][KV head]{ K: [head_dim][k_stride], V: [block_size][v_stride] }: keys of a block lie transposed, so
// that 16 positions are scored at once, each by its own ascending sum; strides are rounded up to 16 elements.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/host/rows.h"
#include "kernels/kernels.h"

namespace troupe::kernels {

struct KvLayout {
  explicit KvLayout(const KvCache& kv)
      : k_stride(round_up(kv.block_size, 16)),
        v_stride(round_up(kv.head_dim, 16)),
        v_begin(kv.head_dim * k_stride),
        head(v_begin + kv.block_size * v_stride),
        block(head * kv.n_kv_heads),
        layer(block * kv.n_blocks),
        total(layer * kv.n_layers) {}

  std::size_t k_stride, v_stride;
  std::size_t v_begin;                    // of V, from the head's start
  std::size_t head, block, layer, total;  // elements

  std::size_t at(std::uint32_t l, std::uint32_t b, std::uint32_t h) const { return l * layer + b * block + h * head; }
};

}  // namespace troupe::kernels
