#include "kernels/cuda/cuda_kernels.h"
#include "tests/kernels/cuda/cuda_testing.h"

namespace troupe::kernels {
namespace {

// A block that is read and written into another place, of another cache, is that block in every layer, and nothing else moves.
TEST(CudaKvBlock, IsCopiedInAllLayers) {
  for (const KvCache shape : {KvCache{nullptr, 3, 5, 16, 2, 24}, KvCache{nullptr, 1, 4, 5, 1, 16}, KvCache{nullptr, 2, 4, 32, 3, 64}}) {
    Machine machine(3);
    const auto kernels = make_cuda_kernels({.stream = machine.native()});
    const std::size_t words = kernels->kv_bytes(shape) / 4, block_words = kernels->kv_block_bytes(shape) / 4;
    ASSERT_EQ(block_words * shape.n_blocks, words);
    std::vector<std::uint32_t> from(words), to(words, 7), packed(block_words + 1, 9);
    for (std::size_t i = 0; i < words; ++i) from[i] = static_cast<std::uint32_t>(1000 + i);
    KvCache a = shape, b = shape;
    a.data = from.data(), b.data = to.data();
    kernels->read_block(a, 2, packed.data());
    machine.wait();
    EXPECT_EQ(packed.back(), 9u);
    kernels->write_block(b, 3, packed.data());
    machine.wait();
    const std::size_t piece = block_words / shape.n_layers;
    for (std::size_t i = 0; i < words; ++i) {
      const std::size_t layer = i / piece / shape.n_blocks, block = i / piece % shape.n_blocks;
      ASSERT_EQ(to[i], block == 3 ? from[(layer * shape.n_blocks + 2) * piece + i % piece] : 7u) << i;
    }
  }
}

}  // namespace
}  // namespace troupe::kernels
