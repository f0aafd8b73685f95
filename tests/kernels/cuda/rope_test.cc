#include <cstring>

#include "tests/kernels/cuda/attention_rig.h"

namespace troupe::kernels {
namespace {

const Shape kShapes[] = {{4, 2, 16, 16, 16},
                         {9, 3, 64, 64, 16},
                         {5, 1, 32, 16, 16},
                         {2, 2, 24, 8, 8},
                         {6, 3, 16, 16, 5},
                         {6, 1, 32, 24, 16, 0, true},
                         {2, 1, 256, 256, 16, 0, true},
                         {3, 3, 128, 64, 32, 0, true}};

// q has the bits of the host's; keys and values those of its F32 cache, rounded to BF16.
TEST(CudaRope, IsTheHostsRoundedToBf16InTheCache) {
  for (const Shape& shape : kShapes) {
    for (std::uint64_t seed : kSeeds) {
      Sequence s(shape, 21, seed);
      const HostSequence host(s);
      std::vector<StepToken> tokens;
      for (std::uint32_t t = 0; t < s.n; ++t) tokens.push_back({0, 1, t});
      std::vector<float> angles(s.n * shape.rotated), work = s.qkv;
      launch_rope_angles(tokens.data(), s.n, s.inv_freq.data(), shape.rotated / 2, angles.data(), s.machine.stream());
      launch_rope_store(s.rope_args(tokens, work.data(), angles.data()), s.kv, s.tables, s.machine.stream());
      ASSERT_TRUE(same_bits(work, host.work)) << name_of(shape);  // and k and v are as they were
      std::size_t written = 0;
      for (std::uint32_t t = 0; t < s.n; ++t) {
        for (std::uint32_t h = 0; h < shape.kv_heads; ++h) {
          for (std::uint32_t value : {0u, 1u}) {
            for (std::uint32_t i = 0; i < shape.head_dim; ++i, ++written) {
              const float got = std::bit_cast<float>(std::uint32_t{s.stored(t, h, value, i)} << 16);
              ASSERT_EQ(got, rounded_bf16(host.stored(s, t, h, value, i)))
                  << name_of(shape) << " " << t << " " << h << " " << value << " " << i;
            }
          }
        }
      }
      const auto* halves = reinterpret_cast<const std::uint16_t*>(s.cache.data());
      const auto untouched = std::count(halves, halves + 2 * s.cache.size(), 0xffff);
      EXPECT_EQ(static_cast<std::size_t>(untouched), 2 * s.cache.size() - written);  // nothing else
    }
  }
}

TEST(CudaRope, ATokenWithoutBlocksWritesNothing) {
  Sequence s({2, 1, 16, 16, 16}, 20, 1);
  const auto before = s.cache;
  const std::vector<StepToken> tokens{{0, kNone, 3}};
  std::vector<float> angles(16), work = s.qkv;
  launch_rope_angles(tokens.data(), 1, s.inv_freq.data(), 8, angles.data(), s.machine.stream());
  launch_rope_store(s.rope_args(tokens, work.data(), angles.data()), s.kv, s.tables, s.machine.stream());
  EXPECT_EQ(s.cache, before);
  EXPECT_NE(work[0], s.qkv[0]);  // q turns all the same
}

}  // namespace
}  // namespace troupe::kernels
