#include "kernels/cuda/families.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/rows.h"

namespace troupe::kernels {

namespace {

constexpr unsigned kThreads = 128;

// A block per token.
template <Format kFormat>
__global__ void embed_kernel(const std::uint8_t* rows, std::size_t stride, std::uint32_t cols, const StepToken* tokens, float* x) {
  const std::size_t t = blockIdx.x;
  const std::uint8_t* row = rows + tokens[t].id * stride;
  for (std::uint32_t col = threadIdx.x * 16; col < cols; col += kThreads * 16) {
    float v[16];
    unpack16<kFormat>(load16<kFormat>(row, col), col, v);
    for (int i = 0; i < 16; ++i) x[t * cols + col + i] = v[i];
  }
}

// A block per row of the step: its last token is the sum of n_tokens up to it, less one.
__global__ void gather_kernel(const StepRow* rows, const float* x, std::uint32_t width, float* out) {
  using Sums = std::uint32_t[kThreads / 32];
  TROUPE_SHARED(Sums, of_warp);
  const std::uint32_t r = blockIdx.x, output = rows[r].output;
  if (output == kNone) return;
  std::uint32_t end = 0;
  for (std::uint32_t i = threadIdx.x; i <= r; i += kThreads) end += rows[i].n_tokens;
  end = warp_sum(end);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = end;
  __syncthreads();
  end = 0;
  for (unsigned w = 0; w < kThreads / 32; ++w) end += of_warp[w];
  const float* from = x + (static_cast<std::size_t>(end) - 1) * width;
  for (std::uint32_t i = threadIdx.x; i < width; i += kThreads) out[static_cast<std::size_t>(output) * width + i] = from[i];
}

}  // namespace

void launch_embed(const Weight& w, const StepToken* tokens, std::uint32_t n_tokens, float* x, CudaStream stream) {
  with_format(w.format, [&](auto format) {
    launch(&embed_kernel<decltype(format)::value>, {n_tokens}, kThreads, stream, static_cast<const std::uint8_t*>(w.data),
           row_bytes(w.format, w.cols), w.cols, tokens, x);
  });
}

void launch_gather_outputs(const StepRow* rows, std::uint32_t n_rows, const float* x, std::uint32_t width, float* out, CudaStream stream) {
  launch(&gather_kernel, {n_rows}, kThreads, stream, rows, x, width, out);
}

}  // namespace troupe::kernels
