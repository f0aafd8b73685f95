// RoPE, and the write of keys and values into the paged KV cache (Kernels::rope_angles,
// rope_store), for one token. Any thread; two tokens never write the same position.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"

namespace troupe::kernels {

// out[i] = {cos, sin} of position * inv_freq[i], in double, rounded to F32.
void rope_angles(std::uint32_t position, const double* inv_freq, std::uint32_t n_freqs, float* out);

// Token t of args.
void rope_store(const RopeArgs& args, std::uint32_t t, const KvCache& kv, const BlockTables& tables, bool half);

}  // namespace troupe::kernels
