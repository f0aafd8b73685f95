// One sequence for the tests of RoPE, the cache and attention: random q, k and v for n tokens in slot 1, its blocks scattered
// over a cache that holds NaN wherever nothing was written.
#pragma once

#include <algorithm>
#include <numeric>

#include "kernels/host/host_kernels.h"
#include "kernels/host/kv_layout.h"
#include "tests/kernels/cuda/cuda_testing.h"

namespace troupe::kernels {

struct Shape {
  std::uint32_t heads, kv_heads, head_dim, rotated, block_size;
  std::uint32_t window = 0;
  bool halves = false;
};

inline std::string name_of(const Shape& s) {
  return "h" + std::to_string(s.heads) + "kv" + std::to_string(s.kv_heads) + "d" + std::to_string(s.head_dim) + "b" +
         std::to_string(s.block_size) + "w" + std::to_string(s.window) + (s.halves ? "halves" : "");
}

enum class Path { decode, prefill };

struct Sequence {
  Sequence(const Shape& s, std::uint32_t n, std::uint64_t seed, std::uint64_t block_seed = 1, float spread = 1.0f)
      : shape(s), n(n), stride((s.heads + 2 * s.kv_heads) * s.head_dim), machine(seed) {
    const std::uint32_t blocks = (n + s.block_size - 1) / s.block_size;
    kv = {nullptr, 2, blocks + 3, s.block_size, s.kv_heads, s.head_dim};
    cache.assign(cuda_kv_bytes(kv) / 4, 0xffffffffu);
    kv.data = cache.data();
    table.assign(2 * blocks, 0);
    std::vector<std::uint32_t> order(blocks + 3);
    std::iota(order.begin(), order.end(), 1);
    std::shuffle(order.begin(), order.end(), std::mt19937_64(block_seed));
    std::copy_n(order.begin(), blocks, table.begin() + blocks);
    tables = {table.data(), 2, blocks};
    qkv = random_floats(std::size_t{n} * stride, 9, spread);
    for (std::uint32_t i = 0; i < s.rotated / 2; ++i) inv_freq.push_back(std::pow(10000.0, -2.0 * i / s.rotated));
    out.assign(std::size_t{n} * width(), std::nanf(""));
    partial.assign(attention_partial_floats(n, s.heads, s.head_dim, n), std::nanf(""));
  }

  std::size_t width() const { return std::size_t{shape.heads} * shape.head_dim; }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(shape.head_dim)); }
  RopeArgs rope_args(const std::vector<StepToken>& tokens, float* work, const float* angles) const {
    const float* k = work + width();
    return {tokens.data(),
            static_cast<std::uint32_t>(tokens.size()),
            1,
            shape.heads,
            shape.rotated,
            work,
            k,
            k + shape.kv_heads * shape.head_dim,
            stride,
            angles,
            shape.halves};
  }

  // Tokens [begin, end) in one call, into `out`.
  void step(std::uint32_t begin, std::uint32_t end, Path path) {
    std::vector<StepToken> tokens;
    for (std::uint32_t t = begin; t < end; ++t) tokens.push_back({0, 1, t});
    const auto count = end - begin;
    std::vector<float> angles(std::size_t{count} * shape.rotated), work = piece_of(qkv, begin * stride, end * stride);
    launch_rope_angles(tokens.data(), count, inv_freq.data(), shape.rotated / 2, angles.data(), machine.stream());
    launch_rope_store(rope_args(tokens, work.data(), angles.data()), kv, tables, machine.stream());
    attend(tokens, work.data(), out.data() + begin * width(), path);
  }
  void attend(const std::vector<StepToken>& tokens, const float* q, float* to, Path path) {
    const AttentionArgs a{tokens.data(), static_cast<std::uint32_t>(tokens.size()), 1, shape.heads, q, stride, to, scale(), shape.window};
    if (path == Path::decode) {
      std::fill(partial.begin(), partial.end(), std::nanf(""));
      launch_attention_decode(a, kv, tables, n, partial.data(), machine.stream());
    } else {
      launch_attention_prefill(a, kv, tables, machine.stream());
    }
  }

  // Where families.h says that an element lies; value: 0 = key, 1 = value.
  std::uint16_t stored(std::uint32_t position, std::uint32_t head, std::uint32_t value, std::uint32_t element) const {
    const std::size_t block = table[tables.blocks_per_slot + position / shape.block_size] - 1;
    const std::size_t at =
        ((((1 * std::size_t{kv.n_blocks} + block) * shape.kv_heads + head) * 2 + value) * shape.block_size + position % shape.block_size) *
            shape.head_dim +
        element;
    return reinterpret_cast<const std::uint16_t*>(cache.data())[at];
  }

  Shape shape;
  std::uint32_t n;
  std::size_t stride;
  Machine machine;
  KvCache kv;
  std::vector<std::uint32_t> cache, table;
  BlockTables tables;
  std::vector<float> qkv, out, partial;
  std::vector<double> inv_freq;
};

// The same by the host's exact kernels (F32 cache).
struct HostSequence {
  explicit HostSequence(const Sequence& s) : kv(s.kv), table(s.table), out(s.n * s.width()), work(s.qkv) {
    HostKernelsOptions o;
    o.exact = true, o.max_rows = s.n, o.max_context = s.n, o.max_group = s.shape.heads / s.shape.kv_heads,
    o.block_size = s.shape.block_size;
    const auto kernels = make_host_kernels(o);
    cache.assign(kernels->kv_bytes(kv) / 4, 0.0f);
    kv.data = cache.data();
    tables = {table.data(), 2, s.tables.blocks_per_slot};
    std::vector<StepToken> tokens;
    for (std::uint32_t t = 0; t < s.n; ++t) tokens.push_back({0, 1, t});
    std::vector<float> angles(std::size_t{s.n} * s.shape.rotated);
    kernels->rope_angles(tokens.data(), s.n, s.inv_freq.data(), s.shape.rotated / 2, angles.data());
    kernels->rope_store(s.rope_args(tokens, work.data(), angles.data()), kv, tables);
    kernels->attention({tokens.data(), s.n, 1, s.shape.heads, work.data(), s.stride, out.data(), s.scale(), s.shape.window}, kv, tables);
  }
  float stored(const Sequence& s, std::uint32_t position, std::uint32_t head, std::uint32_t value, std::uint32_t element) const {
    const KvLayout l(kv);
    const std::uint32_t in_block = position % s.shape.block_size;
    const std::size_t at = l.at(1, table[tables.blocks_per_slot + position / s.shape.block_size] - 1, head);
    return cache[at + (value == 0 ? element * l.k_stride + in_block : l.v_begin + in_block * l.v_stride + element)];
  }
  KvCache kv;
  std::vector<std::uint32_t> table;
  BlockTables tables;
  std::vector<float> cache, out, work;
};

}  // namespace troupe::kernels
