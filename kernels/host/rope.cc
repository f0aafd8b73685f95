#include "kernels/host/rope.h"

#include <cmath>

#include "kernels/host/half.h"
#include "kernels/host/kv_layout.h"

namespace troupe::kernels {

namespace {

inline void put(float* to, float x) { *to = x; }
inline void put(std::uint16_t* to, float x) { *to = float_to_half(x); }

struct Pair {
  float a, b;
};
inline Pair turn(float a, float b, const float* angle) { return {a * angle[0] - b * angle[1], a * angle[1] + b * angle[0]}; }

template <class E>
void store(const RopeArgs& args, std::uint32_t t, const KvCache& kv, const BlockTables& tables) {
  const StepToken& token = args.tokens[t];
  const float* angles = args.angles + static_cast<std::size_t>(t) * args.rotated;
  // For even i, pair i / 2 is the elements near(i) and near(i) + far.
  const std::uint32_t far = args.halves ? args.rotated / 2 : 1;
  const auto near = [&](std::uint32_t i) { return args.halves ? i / 2 : i; };
  float* q = args.q + t * args.stride;
  for (std::uint32_t h = 0; h < args.n_heads; ++h, q += kv.head_dim) {
    for (std::uint32_t i = 0; i < args.rotated; i += 2) {
      float& a = q[near(i)];
      float& b = q[near(i) + far];
      const Pair p = turn(a, b, angles + i);
      a = p.a;
      b = p.b;
    }
  }
  if (token.slot == kNone) return;
  const KvLayout layout(kv);
  const std::uint32_t entry =
      tables.entries[static_cast<std::size_t>(token.slot) * tables.blocks_per_slot + token.position / kv.block_size];
  const std::uint32_t at = token.position % kv.block_size;
  const float* k = args.k + t * args.stride;
  const float* v = args.v + t * args.stride;
  for (std::uint32_t h = 0; h < kv.n_kv_heads; ++h, k += kv.head_dim, v += kv.head_dim) {
    E* key = static_cast<E*>(kv.data) + layout.at(args.layer, entry - 1, h);
    E* value = key + layout.v_begin + at * layout.v_stride;
    key += at;
    std::uint32_t i = 0;
    for (; i < args.rotated; i += 2) {
      const Pair p = turn(k[near(i)], k[near(i) + far], angles + i);
      put(key + near(i) * layout.k_stride, p.a);
      put(key + (near(i) + far) * layout.k_stride, p.b);
    }
    for (; i < kv.head_dim; ++i) put(key + i * layout.k_stride, k[i]);
    for (i = 0; i < kv.head_dim; ++i) put(value + i, v[i]);
  }
}

}  // namespace

void rope_angles(std::uint32_t position, const double* inv_freq, std::uint32_t n_freqs, float* out) {
  for (std::uint32_t i = 0; i < n_freqs; ++i) {
    const double angle = position * inv_freq[i];
    out[2 * i] = static_cast<float>(std::cos(angle));
    out[2 * i + 1] = static_cast<float>(std::sin(angle));
  }
}

void rope_store(const RopeArgs& args, std::uint32_t t, const KvCache& kv, const BlockTables& tables, bool half) {
  half ? store<std::uint16_t>(args, t, kv, tables) : store<float>(args, t, kv, tables);
}

}  // namespace troupe::kernels
