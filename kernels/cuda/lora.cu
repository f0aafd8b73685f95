#include <algorithm>

#include "kernels/cuda/families.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/numbers.h"

namespace troupe::kernels {

namespace {

constexpr unsigned kThreads = 128;
constexpr std::uint32_t kTokens = 4;  // of a tile: tokens of one run, which share the reads of the weights
constexpr std::uint32_t kRanks = 4;   // rows of A that a block of the shrink takes
constexpr std::uint32_t kRuns = 128;  // of a launch: they travel in its arguments, of which there may be 4096 bytes

struct LoraCall {
  LoraJob jobs[kLoraJobs];
  LoraRun runs[kRuns];
  const float* x;
  std::uint32_t cols, max_rank;
  float* shrunk;  // [token][kLoraJobs][max_rank]
};
static_assert(sizeof(LoraCall) <= 4096);

struct LoraTile {
  std::uint32_t token, n, slot;
};

__device__ inline LoraTile tile_at(const LoraCall& a, std::uint32_t tile) {
  for (std::uint32_t i = 0;; ++i) {
    const LoraRun& run = a.runs[i];
    const std::uint32_t here = (run.n_tokens + kTokens - 1) / kTokens;
    if (tile < here) {
      const std::uint32_t left = run.n_tokens - tile * kTokens;
      return {run.first_token + tile * kTokens, left < kTokens ? left : kTokens, run.slot};
    }
    tile -= here;
  }
}

__device__ inline float* shrunk_at(const LoraCall& a, std::size_t token, std::uint32_t job) {
  return a.shrunk + (token * kLoraJobs + job) * a.max_rank;
}

// A block per tile, kRanks rows of A and job.
__global__ void __launch_bounds__(kThreads) shrink_kernel(const LoraCall a) {
  using Sums = float[kThreads / 32][kRanks][kTokens];
  TROUPE_SHARED(Sums, of_warp);
  const LoraTile tile = tile_at(a, blockIdx.x);
  const LoraWeight w = a.jobs[blockIdx.z].slots[tile.slot];
  const std::uint32_t k0 = blockIdx.y * kRanks;
  if (k0 >= w.rank) return;
  const std::uint32_t ranks = w.rank - k0 < kRanks ? w.rank - k0 : kRanks;
  const float* rows = w.a + std::size_t{k0} * a.cols;
  const float* x = a.x + std::size_t{tile.token} * a.cols;

  float sum[kRanks][kTokens] = {};
  for (std::uint32_t i = threadIdx.x; i < a.cols; i += kThreads) {
    float v[kTokens];
    for (std::uint32_t t = 0; t < kTokens; ++t) v[t] = t < tile.n ? x[std::size_t{t} * a.cols + i] : 0.0f;
    for (std::uint32_t k = 0; k < kRanks; ++k) {
      const float row = k < ranks ? rows[std::size_t{k} * a.cols + i] : 0.0f;
      for (std::uint32_t t = 0; t < kTokens; ++t) sum[k][t] = fmaf(row, v[t], sum[k][t]);
    }
  }
  for (std::uint32_t k = 0; k < kRanks; ++k) {
    for (std::uint32_t t = 0; t < kTokens; ++t) {
      if (k >= ranks || t >= tile.n) continue;  // the same for the whole block
      const float all = warp_sum(sum[k][t]);
      if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32][k][t] = all;
    }
  }
  __syncthreads();
  const std::uint32_t k = threadIdx.x / kTokens, t = threadIdx.x % kTokens;
  if (k >= ranks || t >= tile.n) return;
  float all = of_warp[0][k][t];
  for (unsigned warp = 1; warp < kThreads / 32; ++warp) all += of_warp[warp][k][t];
  shrunk_at(a, tile.token + t, blockIdx.z)[k0 + k] = all * w.scale;
}

// A block per tile, kThreads rows of the output and job.
__global__ void __launch_bounds__(kThreads) expand_kernel(const LoraCall a) {
  const LoraTile tile = tile_at(a, blockIdx.x);
  const LoraJob& job = a.jobs[blockIdx.z];
  const LoraWeight w = job.slots[tile.slot];
  const std::uint32_t r = blockIdx.y * kThreads + threadIdx.x;
  if (r >= job.rows || w.rank == 0) return;  // no adapter here: not even + 0, which would change a -0
  const float* s = shrunk_at(a, tile.token, blockIdx.z);
  const std::size_t next = std::size_t{kLoraJobs} * a.max_rank;
  float sum[kTokens] = {};
  for (std::uint32_t k = 0; k < w.rank; ++k) {
    const float b = w.b[std::size_t{k} * job.rows + r];
    for (std::uint32_t t = 0; t < kTokens; ++t) {
      if (t < tile.n) sum[t] = fmaf(s[t * next + k], b, sum[t]);
    }
  }
  for (std::uint32_t t = 0; t < kTokens; ++t) {
    if (t < tile.n) job.y[(tile.token + t) * job.stride + r] += sum[t];
  }
}

}  // namespace

std::size_t lora_scratch_floats(std::uint32_t n_tokens, std::uint32_t max_rank) { return std::size_t{n_tokens} * kLoraJobs * max_rank; }

void launch_lora(std::span<const LoraJob> jobs, std::span<const LoraRun> runs, const float* x, std::uint32_t cols, std::uint32_t max_rank,
                 float* shrunk, CudaStream stream) {
  for (std::size_t j = 0; j < jobs.size(); j += kLoraJobs) {
    const std::size_t n_jobs = std::min<std::size_t>(kLoraJobs, jobs.size() - j);
    for (std::size_t r = 0; r < runs.size(); r += kRuns) {
      LoraCall a{};
      std::uint32_t most_rows = 0;
      for (std::size_t i = 0; i < n_jobs; ++i) {
        a.jobs[i] = jobs[j + i];
        most_rows = std::max(most_rows, a.jobs[i].rows);
      }
      std::size_t tiles = 0;
      for (std::size_t i = 0; i < std::min<std::size_t>(kRuns, runs.size() - r); ++i) {
        a.runs[i] = runs[r + i];
        tiles += divide_up(a.runs[i].n_tokens, kTokens);
      }
      a.x = x, a.cols = cols, a.max_rank = max_rank, a.shrunk = shrunk;
      launch(&shrink_kernel, {tiles, divide_up(max_rank, kRanks), n_jobs}, kThreads, stream, a);
      launch(&expand_kernel, {tiles, divide_up<std::uint32_t>(most_rows, kThreads), n_jobs}, kThreads, stream, a);
    }
  }
}

}  // namespace troupe::kernels
