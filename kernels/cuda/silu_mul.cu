#include "kernels/cuda/families.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/numbers.h"

namespace troupe::kernels {

namespace {

constexpr unsigned kThreads = 256;

__global__ void silu_mul_kernel(float* gate, const float* up, std::size_t n) {
  const std::size_t i = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < n) gate[i] = gate[i] / (1.0f + exp_float(-gate[i])) * up[i];
}

}  // namespace

void launch_silu_mul(float* gate, const float* up, std::size_t n, CudaStream stream) {
  launch(&silu_mul_kernel, {divide_up<std::size_t>(n, kThreads)}, kThreads, stream, gate, up, n);
}

}  // namespace troupe::kernels
