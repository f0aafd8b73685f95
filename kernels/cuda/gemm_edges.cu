// What stands around a product that a library makes: its input rounded to BF16, and the bias behind it.
#include "kernels/cuda/families.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/numbers.h"

namespace troupe::kernels {

namespace {

constexpr unsigned kThreads = 256;

__global__ void round_bf16_kernel(const float* x, std::uint16_t* to, std::size_t n) {
  const std::size_t i = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < n) to[i] = to_bf16(x[i]);
}

__global__ void add_bias_kernel(float* y, std::size_t stride, const float* bias, std::uint32_t rows, std::size_t n) {
  const std::size_t i = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < n) y[i / rows * stride + i % rows] += bias[i % rows];
}

}  // namespace

void launch_round_bf16(const float* x, std::uint16_t* to, std::size_t n, CudaStream stream) {
  launch(&round_bf16_kernel, {divide_up<std::size_t>(n, kThreads)}, kThreads, stream, x, to, n);
}

void launch_add_bias(float* y, std::size_t stride, const float* bias, std::uint32_t rows, std::uint32_t n_rows, CudaStream stream) {
  const std::size_t n = std::size_t{n_rows} * rows;
  launch(&add_bias_kernel, {divide_up<std::size_t>(n, kThreads)}, kThreads, stream, y, stride, bias, rows, n);
}

}  // namespace troupe::kernels
