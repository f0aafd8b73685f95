#include "kernels/cuda/families.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/numbers.h"

namespace troupe::kernels {

namespace {

struct Best {
  float value;
  std::uint32_t index;  // kNone: none yet
};

// The larger value, the lower index where they are equal: a total order, so it matters nowhere in which order it is asked.
__device__ inline Best better(const Best& a, const Best& b) {
  if (b.index == kNone) return a;
  if (a.index == kNone || b.value > a.value || (b.value == a.value && b.index < a.index)) return b;
  return a;
}

__device__ inline Best better_of_warp(Best mine) {
  for (int apart = 16; apart != 0; apart /= 2) {
    const Best other{__shfl_xor_sync(~0u, mine.value, apart), __shfl_xor_sync(~0u, mine.index, apart)};
    mine = better(mine, other);
  }
  return mine;
}

using BestOfWarps = Best[32];

// Of v[0..n) without elements a and b; every thread gets it.
__device__ inline std::uint32_t block_argmax(const float* v, std::uint32_t n, std::uint32_t a, std::uint32_t b, BestOfWarps& of_warp) {
  Best mine{0.0f, kNone};
  for (std::uint32_t i = threadIdx.x; i < n; i += blockDim.x) {
    const float x = v[i];
    if (x == x && i != a && i != b) mine = better(mine, {x, i});
  }
  mine = better_of_warp(mine);
  __syncthreads();  // of_warp may still be read from the call before
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = mine;
  __syncthreads();
  const std::uint32_t lane = threadIdx.x % 32;
  return better_of_warp(lane < blockDim.x / 32 ? of_warp[lane] : Best{0.0f, kNone}).index;
}

// A block per row.
__global__ void __launch_bounds__(kMostThreads)
    argmax_feed_kernel(const StepRow* rows, const float* logits, std::uint32_t vocab, std::uint32_t tag, Cell* cells, RowReadback* readback,
                       float* logits_out) {
  TROUPE_SHARED(BestOfWarps, of_warp);
  const std::uint32_t r = blockIdx.x;
  const StepRow row = rows[r];
  if (row.output == kNone) return;
  const float* v = logits + static_cast<std::size_t>(row.output) * vocab;
  if (row.logits_row != kNone) {
    float* to = logits_out + static_cast<std::size_t>(row.logits_row) * vocab;
    for (std::uint32_t i = threadIdx.x; i < vocab; i += blockDim.x) to[i] = v[i];
  }
  if (cells[r].status != Status::ok || row.sampled != 0) return;
  std::uint32_t id = block_argmax(v, vocab, kNone, kNone, of_warp);
  if (id != kNone && (id == row.mask_a || id == row.mask_b)) id = block_argmax(v, vocab, row.mask_a, row.mask_b, of_warp);
  if (threadIdx.x != 0) return;
  const Status status = id == kNone ? Status::no_token : Status::ok;
  cells[r] = {id == kNone ? 0 : id, status, tag};
  readback[r].id = cells[r].id;
  readback[r].status = status;
}

}  // namespace

void launch_argmax_feed(const StepRow* rows, std::uint32_t n_rows, const float* logits, std::uint32_t vocab, std::uint32_t tag, Cell* cells,
                        RowReadback* readback, float* logits_out, CudaStream stream, unsigned threads) {
  launch(&argmax_feed_kernel, {n_rows}, threads, stream, rows, logits, vocab, tag, cells, readback, logits_out);
}

}  // namespace troupe::kernels
