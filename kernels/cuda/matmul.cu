#include "kernels/cuda/families.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/mma.h"
#include "kernels/cuda/rows.h"

namespace troupe::kernels {

namespace {

constexpr std::uint32_t kSlice = 64;              // columns in shared memory at a time
constexpr std::uint32_t kPitch = kSlice / 2 + 4;  // words from one row to the next there: fragments are read without conflicts

struct alignas(16) SliceRow {
  std::uint32_t words[kPitch];
};
static_assert(sizeof(SliceRow) == 4 * kPitch);

struct MatmulShape {
  const std::uint8_t* w;
  std::size_t w_stride;  // bytes
  std::uint32_t rows, cols, n;
  const float* x;
  float* y;
  std::size_t stride;
  bool add;
  const float* bias;
};

// 16 elements of w as BF16, in two stores.
template <Format kFormat>
__device__ inline void put16(std::uint32_t* to, const Raw16<kFormat>& raw, std::uint32_t col) {
  Word128 words[2];
  if constexpr (kFormat == Format::bf16) {
    TROUPE_UNROLL for (int i = 0; i < 8; ++i) words[i / 4].w[i % 4] = raw.w[i];
  } else {
    float v[16];
    unpack16<kFormat>(raw, col, v);
    TROUPE_UNROLL for (int i = 0; i < 8; ++i) words[i / 4].w[i % 4] = bf16_pair(v[2 * i], v[2 * i + 1]);
  }
  reinterpret_cast<Word128*>(to)[0] = words[0];
  reinterpret_cast<Word128*>(to)[1] = words[1];
}

// A block multiplies 16 kWarps rows of w (16 a warp) with 8 kTiles rows of x. Slices of both go through registers, which hold kAhead of
// them that are still on their way from memory, into shared memory as BF16, of which there are two: one is written while the other is
// multiplied.
template <Format kFormat, int kWarps, int kTiles, int kAhead>
__global__ void __launch_bounds__(32 * kWarps) matmul_kernel(const MatmulShape a) {
  constexpr std::uint32_t kThreads = 32 * kWarps, kRowPieces = kSlice / 16, kRowQuads = kSlice / 4;
  constexpr int kPieces = 16 * kWarps * kRowPieces / kThreads;  // of 16 elements of w, that a thread moves of a slice
  constexpr int kQuads = 8 * kTiles * kRowQuads / kThreads;     // of 4 elements of x
  struct Part {
    Raw16<kFormat> w[kPieces];
    Word128 x[kQuads];
  };
  using W = SliceRow[2][16 * kWarps];
  using X = SliceRow[2][8 * kTiles];
  TROUPE_SHARED(W, w);
  TROUPE_SHARED(X, x);
  const std::uint32_t thread = threadIdx.x, warp = thread / 32, lane = thread % 32, group = lane / 4, quad = lane % 4;
  const std::uint32_t row0 = blockIdx.x * 16 * kWarps, t0 = blockIdx.y * 8 * kTiles;

  const auto load = [&](Part& part, std::uint32_t slice) {
    TROUPE_UNROLL for (int k = 0; k < kPieces; ++k) {
      const std::uint32_t i = thread + k * kThreads, r = row0 + i / kRowPieces, col = slice * kSlice + i % kRowPieces * 16;
      if (r < a.rows && col < a.cols) part.w[k] = load16<kFormat>(a.w + r * a.w_stride, col);
    }
    TROUPE_UNROLL for (int k = 0; k < kQuads; ++k) {
      const std::uint32_t i = thread + k * kThreads, t = t0 + i / kRowQuads, col = slice * kSlice + i % kRowQuads * 4;
      if (t < a.n && col < a.cols) part.x[k] = word128(a.x + std::size_t{t} * a.cols + col);
    }
  };
  // What is not there is zeros.
  const auto put = [&](const Part& part, std::uint32_t slice) {
    TROUPE_UNROLL for (int k = 0; k < kPieces; ++k) {
      const std::uint32_t i = thread + k * kThreads, r = i / kRowPieces, at = i % kRowPieces * 16, col = slice * kSlice + at;
      std::uint32_t* to = w[slice % 2][r].words + at / 2;
      if (row0 + r < a.rows && col < a.cols) {
        put16<kFormat>(to, part.w[k], col);
      } else {
        TROUPE_UNROLL for (int j = 0; j < 8; ++j) to[j] = 0;
      }
    }
    TROUPE_UNROLL for (int k = 0; k < kQuads; ++k) {
      const std::uint32_t i = thread + k * kThreads, t = i / kRowQuads, at = i % kRowQuads * 4;
      const bool there = t0 + t < a.n && slice * kSlice + at < a.cols;
      const auto& v = part.x[k].w;
      std::uint32_t* to = x[slice % 2][t].words + at / 2;
      to[0] = there ? bf16_pair(float_from_bits(v[0]), float_from_bits(v[1])) : 0;
      to[1] = there ? bf16_pair(float_from_bits(v[2]), float_from_bits(v[3])) : 0;
    }
  };

  float sum[kTiles][4] = {};
  const std::uint32_t slices = (a.cols + kSlice - 1) / kSlice;
  Part parts[kAhead] = {};
  TROUPE_UNROLL for (std::uint32_t i = 0; i < kAhead; ++i) {
    if (i < slices) load(parts[i], i);
  }
  for (std::uint32_t first = 0; first < slices; first += kAhead) {
    TROUPE_UNROLL for (std::uint32_t i = 0; i < kAhead; ++i) {
      const std::uint32_t slice = first + i;
      if (slice >= slices) break;
      put(parts[i], slice);
      if (slice + kAhead < slices) load(parts[i], slice + kAhead);
      __syncthreads();  // one is enough: nobody is more than a slice behind
      for (std::uint32_t k = quad; k < kSlice / 2; k += 8) {
        const auto& rows = w[slice % 2];
        const std::uint32_t r = 16 * warp + group;
        const std::uint32_t fragment[4] = {rows[r].words[k], rows[r + 8].words[k], rows[r].words[k + 4], rows[r + 8].words[k + 4]};
        TROUPE_UNROLL for (int tile = 0; tile < kTiles; ++tile) {
          const auto& column = x[slice % 2][8 * tile + group].words;
          const std::uint32_t other[2] = {column[k], column[k + 4]};
          mma_16x8x16(sum[tile], fragment, other);
        }
      }
    }
  }

  TROUPE_UNROLL for (int tile = 0; tile < kTiles; ++tile) {
    TROUPE_UNROLL for (std::uint32_t i = 0; i < 4; ++i) {
      const std::uint32_t r = row0 + 16 * warp + group + i / 2 * 8, t = t0 + 8 * tile + 2 * quad + i % 2;
      if (r >= a.rows || t >= a.n) continue;
      float& y = a.y[t * a.stride + r];
      float v = a.add ? y + sum[tile][i] : sum[tile][i];
      if (a.bias != nullptr) v += a.bias[r];
      y = v;
    }
  }
}

template <Format kFormat, int kWarps, int kTiles, int kAhead>
void run(const MatmulShape& a, CudaStream stream) {
  launch(&matmul_kernel<kFormat, kWarps, kTiles, kAhead>, {divide_up(a.rows, 16u * kWarps), divide_up(a.n, 8u * kTiles)}, 32 * kWarps,
         stream, a);
}

}  // namespace

void launch_matmul(const MatmulJob& job, const float* x, std::uint32_t n_rows, CudaStream stream, std::uint32_t tile_rows) {
  const Weight& w = job.w;
  const MatmulShape a{static_cast<const std::uint8_t*>(w.data),
                      row_bytes(w.format, w.cols),
                      w.rows,
                      w.cols,
                      n_rows,
                      x,
                      job.y,
                      job.stride,
                      job.add,
                      job.bias};
  const std::uint32_t tile = tile_rows != 0 ? tile_rows : n_rows;
  with_format(w.format, [&](auto format) {
    constexpr Format kFormat = decltype(format)::value;
    // Narrow: weights are what is read, so many blocks, and much on its way in each.
    constexpr int kAhead = raw_words<kFormat>() <= 9 ? 4 : 2;
    if (tile <= 8) return run<kFormat, 2, 1, kAhead>(a, stream);
    if (tile <= 16) return run<kFormat, 2, 2, kAhead>(a, stream);
    if (tile <= 32) return run<kFormat, 4, 4, 1>(a, stream);
    return run<kFormat, 4, 8, 1>(a, stream);
  });
}

}  // namespace troupe::kernels
