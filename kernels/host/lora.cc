#include "kernels/host/lora.h"

#include <algorithm>

#include "kernels/host/simd.h"

namespace troupe::kernels {

namespace {

constexpr std::size_t kTokens = 4;       // of a tile
constexpr std::size_t kSerialTiles = 4;  // up to so many are done by the caller alone: waking helpers costs more

template <std::size_t T, std::size_t V>
TROUPE_INLINE void columns(const LoraExpandTile& a, std::size_t t0, std::size_t r0) {
  F32x16 acc[T][V] = {};
  for (std::size_t k = 0; k < a.rank; ++k) {
    F32x16 b[V];
    for (std::size_t v = 0; v < V; ++v) b[v] = load16(a.b + k * a.n_rows + r0 + 16 * v);
    for (std::size_t t = 0; t < T; ++t) {
      const F32x16 s = splat16(a.s[(t0 + t) * a.s_stride + k]);
      for (std::size_t v = 0; v < V; ++v) acc[t][v] = acc[t][v] + s * b[v];
    }
  }
  for (std::size_t t = 0; t < T; ++t) {
    for (std::size_t v = 0; v < V; ++v) {
      float* y = a.y + (t0 + t) * a.y_stride + r0 + 16 * v;
      store16(y, load16(y) + acc[t][v]);
    }
  }
}

// The same for the rows after the last whole sixteen.
TROUPE_INLINE void last_columns(const LoraExpandTile& a, std::size_t t, std::size_t r0) {
  for (std::size_t r = r0; r < a.n_rows; ++r) {
    float acc = 0.0f;
    for (std::size_t k = 0; k < a.rank; ++k) acc = acc + a.s[t * a.s_stride + k] * a.b[k * a.n_rows + r];
    float& y = a.y[t * a.y_stride + r];
    y = y + acc;
  }
}

template <std::size_t T>
TROUPE_INLINE void tokens(const LoraExpandTile& a, std::size_t t) {
  std::size_t r = 0;
  for (; r + 32 <= a.n_rows; r += 32) columns<T, 2>(a, t, r);
  for (; r + 16 <= a.n_rows; r += 16) columns<T, 1>(a, t, r);
  if (r == a.n_rows) return;
  for (std::size_t i = 0; i < T; ++i) last_columns(a, t + i, r);
}

TROUPE_INLINE void expand(const LoraExpandTile& a) {
  std::size_t t = 0;
  for (; t + 4 <= a.n_tokens; t += 4) tokens<4>(a, t);
  for (; t < a.n_tokens; ++t) tokens<1>(a, t);
}

TROUPE_SIMD_TARGETS(expand, (const LoraExpandTile& a), expand(a))

}  // namespace

LoraExpand lora_expand(Target target) { return expand_pick(target); }

Lora::Lora(Target target, std::size_t max_rank, ThreadPool& pool)
    : max_rank_(max_rank), pool_(pool), dot_(dot_f32(target)), expand_(lora_expand(target)), shrunk_(pool.threads() * kTokens * max_rank) {}

void Lora::run(std::span<const LoraJob> jobs, std::span<const LoraRun> runs, const float* x, std::size_t cols) {
  std::size_t tiles = 0;
  for (const LoraRun& run : runs) tiles += (run.n_tokens + kTokens - 1) / kTokens;
  auto one = [&](std::size_t item, unsigned thread) {
    const LoraJob& job = jobs[item / tiles];
    std::size_t at = item % tiles;
    for (const LoraRun& run : runs) {
      const std::size_t here = (run.n_tokens + kTokens - 1) / kTokens;
      if (at >= here) {
        at -= here;
        continue;
      }
      const LoraWeight& w = job.slots[run.slot];
      if (w.rank != 0)
        tile(job, w, run.first_token + at * kTokens, std::min<std::size_t>(kTokens, run.n_tokens - at * kTokens), x, cols, thread);
      return;
    }
  };
  const std::size_t items = tiles * jobs.size();
  if (items <= kSerialTiles) {
    for (std::size_t i = 0; i < items; ++i) one(i, 0);
  } else {
    pool_.run(items, one);
  }
}

void Lora::tile(const LoraJob& job, const LoraWeight& w, std::size_t token, std::size_t n, const float* x, std::size_t cols,
                unsigned thread) {
  float* s = shrunk_.data() + thread * kTokens * max_rank_;
  dot_({w.a, cols, w.rank, x + token * cols, cols, n, cols, s, max_rank_, false});
  for (std::size_t t = 0; t < n; ++t) {
    for (std::size_t k = 0; k < w.rank; ++k) s[t * max_rank_ + k] *= w.scale;
  }
  expand_({s, max_rank_, n, w.b, w.rank, job.rows, job.y + token * job.stride, job.stride});
}

}  // namespace troupe::kernels
