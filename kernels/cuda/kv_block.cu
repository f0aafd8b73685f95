#include "kernels/cuda/families.h"
#include "kernels/cuda/kv_cache.h"
#include "kernels/cuda/launch.h"

namespace troupe::kernels {

namespace {

constexpr unsigned kThreads = 256;

// Words of a block in one layer: its KV heads lie side by side.
__host__ __device__ inline std::size_t piece_words(const KvCache& kv) {
  return std::size_t{kv.n_kv_heads} * 2 * kv.block_size * (kv.head_dim / 2);
}

__device__ inline std::uint32_t* block_words(const KvCache& kv, std::uint32_t layer, std::uint32_t block) {
  return static_cast<std::uint32_t*>(kv.data) + (layer * std::size_t{kv.n_blocks} + block) * piece_words(kv);
}

// A row of blocks per layer.
__global__ void read_block_kernel(const KvCache kv, std::uint32_t block, std::uint32_t* to) {
  const std::size_t i = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x, words = piece_words(kv);
  if (i < words) to[blockIdx.y * words + i] = block_words(kv, blockIdx.y, block)[i];
}

__global__ void write_block_kernel(const KvCache kv, std::uint32_t block, const std::uint32_t* from) {
  const std::size_t i = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x, words = piece_words(kv);
  if (i < words) block_words(kv, blockIdx.y, block)[i] = from[blockIdx.y * words + i];
}

}  // namespace

void launch_read_block(const KvCache& kv, std::uint32_t block, void* to, CudaStream stream) {
  launch(&read_block_kernel, {divide_up<std::size_t>(piece_words(kv), kThreads), kv.n_layers}, kThreads, stream, kv, block,
         static_cast<std::uint32_t*>(to));
}

void launch_write_block(const KvCache& kv, std::uint32_t block, const void* from, CudaStream stream) {
  launch(&write_block_kernel, {divide_up<std::size_t>(piece_words(kv), kThreads), kv.n_layers}, kThreads, stream, kv, block,
         static_cast<const std::uint32_t*>(from));
}

}  // namespace troupe::kernels
