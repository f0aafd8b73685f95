#include "kernels/cuda/families.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/numbers.h"

namespace troupe::kernels {

namespace {

// A block per vector; x and y may be the same: thread i reads and writes elements i, i + kThreads, ... alone.
template <unsigned kThreads>
__global__ void rms_norm_kernel(const float* x, std::size_t stride, const float* gain, float* y, std::uint32_t width, float eps) {
  using Sums = float[kThreads / 32];
  TROUPE_SHARED(Sums, of_warp);
  const std::size_t at = blockIdx.x * stride + static_cast<std::size_t>(blockIdx.y) * width;
  float sum = 0.0f;
  for (std::uint32_t i = threadIdx.x; i < width; i += kThreads) sum = fmaf(x[at + i], x[at + i], sum);
  sum = warp_sum(sum);
  if constexpr (kThreads > 32) {
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = of_warp[0];
    for (unsigned w = 1; w < kThreads / 32; ++w) sum += of_warp[w];
  }
  const float scale = 1.0f / sqrtf(sum / static_cast<float>(width) + eps);
  for (std::uint32_t i = threadIdx.x; i < width; i += kThreads) y[at + i] = x[at + i] * scale * gain[i];
}

}  // namespace

void launch_rms_norm(const float* x, const float* gain, float* y, std::uint32_t n_rows, std::uint32_t width, float eps, CudaStream stream) {
  launch(&rms_norm_kernel<256>, {n_rows}, 256, stream, x, static_cast<std::size_t>(width), gain, y, width, eps);
}

void launch_norm_heads(float* x, std::size_t stride, const float* gain, std::uint32_t n_rows, std::uint32_t n_heads, std::uint32_t width,
                       float eps, CudaStream stream) {
  launch(&rms_norm_kernel<32>, {n_rows, n_heads}, 32, stream, x, stride, gain, x, width, eps);
}

}  // namespace troupe::kernels
