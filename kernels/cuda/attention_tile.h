// What decode and prefill attention share: a warp has one row (a token's query head), a block reads tiles of 32 positions of
// one KV head into shared memory. The arithmetic of a row is here alone, so both give the same bits (R1): per tile
//   score[p] = scale * sum of q[i] k[p][i], fma, ascending i;  top = max(old top, the tile's scores)
//   sum = sum * exp(old top - top) + warp_sum(exp(score - top))
//   v[i] = v[i] * exp(old top - top), then fma of exp(score[p] - top) and v[p][i], ascending p
// and a piece of kAttentionSplit positions begins anew and is merged onto those before it.
#pragma once

#include <cstdint>

#include "kernels/cuda/families.h"
#include "kernels/cuda/kv_cache.h"
#include "kernels/cuda/numbers.h"

namespace troupe::kernels {

inline constexpr std::uint32_t kTile = 32;
inline constexpr unsigned kAttentionWarps = 8;  // rows of a block
static_assert(kAttentionSplit % kTile == 0);

__device__ inline float minus_infinity() { return float_from_bits(0xff800000u); }
__device__ inline std::uint32_t smaller(std::uint32_t a, std::uint32_t b) { return a < b ? a : b; }
__device__ inline std::uint32_t larger(std::uint32_t a, std::uint32_t b) { return a < b ? b : a; }

// The first position that a token reads.
__device__ inline std::uint32_t first_position(std::uint32_t position, std::uint32_t window) {
  return window != 0 && position >= window ? position + 1 - window : 0;
}

// A lane has words lane, lane + 32, ... of its row's value: head_dim <= 64 kWords.
template <int kWords>
struct AttentionRow {
  float top, sum, v[2 * kWords];
  __device__ void clear() {
    top = minus_infinity();
    sum = 0.0f;
    for (float& x : v) x = 0.0f;
  }
  __device__ void merge(float piece_top, float piece_sum, const float (&piece_v)[2 * kWords]) {
    const float m = fmaxf(top, piece_top), mine = exp_float(top - m), its = exp_float(piece_top - m);
    sum = sum * mine + piece_sum * its;
    for (int i = 0; i < 2 * kWords; ++i) v[i] = v[i] * mine + piece_v[i] * its;
    top = m;
  }
  __device__ void write(float* out, std::uint32_t head_dim, unsigned lane) const {
    const float inverse = 1.0f / sum;
    for (int i = 0; i < kWords; ++i) {
      const std::uint32_t at = 2 * (lane + 32 * i);
      if (at >= head_dim) break;
      out[at] = v[2 * i] * inverse;
      out[at + 1] = v[2 * i + 1] * inverse;
    }
  }
};

template <int kWords>
struct AttentionShared {
  std::uint32_t k[kTile][32 * kWords + 1];  // odd: lanes read a column
  std::uint32_t v[kTile][32 * kWords];
  float q[kAttentionWarps][64 * kWords];
  float p[kAttentionWarps][kTile];
};

// Positions [low, high) of the tile that begins at `base`, by the whole block. The caller puts barriers around it.
template <int kWords>
__device__ inline void load_tile(AttentionShared<kWords>& s, const KvCache& kv, const std::uint32_t* table, std::uint32_t layer,
                                 std::uint32_t head, std::uint32_t base, std::uint32_t low, std::uint32_t high) {
  const std::uint32_t words = kv.head_dim / 2;
  for (std::uint32_t i = threadIdx.x; i < kTile * words; i += blockDim.x) {
    const std::uint32_t j = i / words, w = i % words, position = base + j;
    if (position < low || position >= high) continue;
    const std::uint32_t* k = key_words(kv, table, layer, head, position) + w;
    s.k[j][w] = k[0];
    s.v[j][w] = k[std::size_t{kv.block_size} * words];
  }
}

// Elements [begin, end) of the tile, onto the warp's row.
template <int kWords>
__device__ inline void attend_tile(AttentionRow<kWords>& row, AttentionShared<kWords>& s, std::uint32_t begin, std::uint32_t end,
                                   std::uint32_t head_dim, float scale) {
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const bool sees = lane >= begin && lane < end;
  float score = minus_infinity();
  if (sees) {
    float dot = 0.0f;
    for (std::uint32_t w = 0; w < head_dim / 2; ++w) {
      const std::uint32_t k = s.k[lane][w];
      dot = fmaf(s.q[warp][2 * w], low_of(k), dot);
      dot = fmaf(s.q[warp][2 * w + 1], high_of(k), dot);
    }
    score = dot * scale;
  }
  const float top = fmaxf(row.top, warp_max(score)), old = exp_float(row.top - top);
  const float p = sees ? exp_float(score - top) : 0.0f;
  row.sum = row.sum * old + warp_sum(p);
  row.top = top;
  s.p[warp][lane] = p;
  __syncwarp();
  for (int i = 0; i < kWords; ++i) {
    const std::uint32_t w = lane + 32 * i;
    if (2 * w >= head_dim) break;
    float a = row.v[2 * i] * old, b = row.v[2 * i + 1] * old;
    for (std::uint32_t j = begin; j < end; ++j) {
      const std::uint32_t v = s.v[j][w];
      a = fmaf(s.p[warp][j], low_of(v), a);
      b = fmaf(s.p[warp][j], high_of(v), b);
    }
    row.v[2 * i] = a;
    row.v[2 * i + 1] = b;
  }
}

// Calls f with kWords for that head size.
template <int kWords>
struct WordsTag {
  static constexpr int value = kWords;
};
template <class F>
void with_words(std::uint32_t head_dim, F&& f) {
  if (head_dim <= 64) return f(WordsTag<1>{});
  if (head_dim <= 128) return f(WordsTag<2>{});
  return f(WordsTag<4>{});
}

}  // namespace troupe::kernels
