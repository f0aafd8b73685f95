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

struct BlockList {
  std::uint32_t block[kBlocksACopy];
};

BlockList list_of(std::span<const std::uint32_t> blocks) {
  BlockList list{};
  for (std::size_t i = 0; i < blocks.size(); ++i) list.block[i] = blocks[i];
  return list;
}

// A row of thread blocks per layer (y) and KV block (z).
__global__ void read_blocks_kernel(const KvCache kv, const BlockList list, std::uint32_t* to) {
  const std::size_t i = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x, words = piece_words(kv);
  const std::size_t piece = std::size_t{blockIdx.z} * kv.n_layers + blockIdx.y;
  if (i < words) to[piece * words + i] = block_words(kv, blockIdx.y, list.block[blockIdx.z])[i];
}

__global__ void write_blocks_kernel(const KvCache kv, const BlockList list, const std::uint32_t* from) {
  const std::size_t i = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x, words = piece_words(kv);
  const std::size_t piece = std::size_t{blockIdx.z} * kv.n_layers + blockIdx.y;
  if (i < words) block_words(kv, blockIdx.y, list.block[blockIdx.z])[i] = from[piece * words + i];
}

}  // namespace

void launch_read_blocks(const KvCache& kv, std::span<const std::uint32_t> blocks, void* to, CudaStream stream) {
  launch(&read_blocks_kernel, {divide_up<std::size_t>(piece_words(kv), kThreads), kv.n_layers, blocks.size()}, kThreads, stream, kv,
         list_of(blocks), static_cast<std::uint32_t*>(to));
}

void launch_write_blocks(const KvCache& kv, std::span<const std::uint32_t> blocks, const void* from, CudaStream stream) {
  launch(&write_blocks_kernel, {divide_up<std::size_t>(piece_words(kv), kThreads), kv.n_layers, blocks.size()}, kThreads, stream, kv,
         list_of(blocks), static_cast<const std::uint32_t*>(from));
}

}  // namespace troupe::kernels
