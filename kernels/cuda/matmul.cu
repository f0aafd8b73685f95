#include "kernels/cuda/families.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/mma.h"
#include "kernels/cuda/rows.h"

namespace troupe::kernels {

namespace {

constexpr std::uint32_t kSlice = 32;              // columns in shared memory at a time
constexpr std::uint32_t kPitch = kSlice / 2 + 4;  // words from one row to the next there: fragments are read without conflicts

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

// Sixteen floats as BF16, into 8 words.
__device__ inline void put16(std::uint32_t* to, const float (&v)[16]) {
  for (int i = 0; i < 8; ++i) to[i] = bf16_pair(v[2 * i], v[2 * i + 1]);
}

// A block multiplies 16 kWarps rows of w (16 a warp) with 8 kTiles rows of x. Slices of both are dequantized and rounded on
// their way into shared memory; the next slice is fetched while one is multiplied.
template <Format kFormat, int kWarps, int kTiles>
__global__ void __launch_bounds__(32 * kWarps) matmul_kernel(const MatmulShape a) {
  using W = std::uint32_t[2][16 * kWarps][kPitch];
  using X = std::uint32_t[2][8 * kTiles][kPitch];
  TROUPE_SHARED(W, w);
  TROUPE_SHARED(X, x);
  const std::uint32_t thread = threadIdx.x, warp = thread / 32, lane = thread % 32, group = lane / 4, quad = lane % 4;
  const std::uint32_t row0 = blockIdx.x * 16 * kWarps, t0 = blockIdx.y * 8 * kTiles;

  const auto fetch = [&](std::uint32_t slice) {
    const std::uint32_t to = slice % 2, r = thread / 2, col = slice * kSlice + thread % 2 * 16;
    float v[16] = {};  // what is not there is zeros
    if (row0 + r < a.rows) unpack16<kFormat>(a.w + (row0 + r) * a.w_stride, col, v);
    put16(&w[to][r][thread % 2 * 8], v);
    for (std::uint32_t i = thread; i < 16 * kTiles; i += 32 * kWarps) {
      const std::uint32_t t = i / 2, at = i % 2 * 16;
      for (int j = 0; j < 16; ++j) v[j] = t0 + t < a.n ? a.x[std::size_t{t0 + t} * a.cols + slice * kSlice + at + j] : 0.0f;
      put16(&x[to][t][at / 2], v);
    }
  };

  float sum[kTiles][4] = {};
  const std::uint32_t slices = a.cols / kSlice;
  fetch(0);
  __syncthreads();
  for (std::uint32_t slice = 0; slice < slices; ++slice) {
    if (slice + 1 < slices) fetch(slice + 1);
    for (std::uint32_t k = quad; k < kSlice / 2; k += 8) {
      const auto& rows = w[slice % 2];
      const std::uint32_t r = 16 * warp + group;
      const std::uint32_t fragment[4] = {rows[r][k], rows[r + 8][k], rows[r][k + 4], rows[r + 8][k + 4]};
      for (int tile = 0; tile < kTiles; ++tile) {
        const auto& column = x[slice % 2][8 * tile + group];
        const std::uint32_t other[2] = {column[k], column[k + 4]};
        mma_16x8x16(sum[tile], fragment, other);
      }
    }
    __syncthreads();
  }

  for (int tile = 0; tile < kTiles; ++tile) {
    for (std::uint32_t i = 0; i < 4; ++i) {
      const std::uint32_t r = row0 + 16 * warp + group + i / 2 * 8, t = t0 + 8 * tile + 2 * quad + i % 2;
      if (r >= a.rows || t >= a.n) continue;
      float& y = a.y[t * a.stride + r];
      float v = a.add ? y + sum[tile][i] : sum[tile][i];
      if (a.bias != nullptr) v += a.bias[r];
      y = v;
    }
  }
}

template <Format kFormat, int kWarps, int kTiles>
void run(const MatmulShape& a, CudaStream stream) {
  launch(&matmul_kernel<kFormat, kWarps, kTiles>, {divide_up(a.rows, 16u * kWarps), divide_up(a.n, 8u * kTiles)}, 32 * kWarps, stream, a);
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
    if (tile <= 8) return run<kFormat, 2, 1>(a, stream);  // narrow: weights are what is read, so many blocks
    if (tile <= 16) return run<kFormat, 2, 2>(a, stream);
    if (tile <= 32) return run<kFormat, 4, 4>(a, stream);
    return run<kFormat, 4, 8>(a, stream);
  });
}

}  // namespace troupe::kernels
