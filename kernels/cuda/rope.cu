#include "kernels/cuda/families.h"
#include "kernels/cuda/kv_cache.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/numbers.h"

namespace troupe::kernels {

namespace {

constexpr unsigned kThreads = 128;

__global__ void rope_angles_kernel(const StepToken* tokens, const double* inv_freq, std::uint32_t n_freqs, float* angles) {
  const std::size_t t = blockIdx.x;
  for (std::uint32_t i = threadIdx.x; i < n_freqs; i += kThreads) {
    const double angle = tokens[t].position * inv_freq[i];
    angles[(t * n_freqs + i) * 2] = static_cast<float>(cos(angle));
    angles[(t * n_freqs + i) * 2 + 1] = static_cast<float>(sin(angle));
  }
}

// Element i of a head, rotated (as it is from a.rotated on).
__device__ inline float turned(const RopeArgs& a, const float* head, const float* angles, std::uint32_t i) {
  if (i >= a.rotated) return head[i];
  const std::uint32_t half = a.rotated / 2;
  const std::uint32_t pair = a.halves ? i % half : i / 2;
  const bool second = a.halves ? i >= half : i % 2 != 0;
  const float x = head[a.halves ? pair : 2 * pair], y = head[a.halves ? pair + half : 2 * pair + 1];
  const float c = angles[2 * pair], s = angles[2 * pair + 1];
  return second ? x * s + y * c : x * c - y * s;
}

// A block per token: keys and values go into the cache, then q is rotated in place, a pair by one thread.
__global__ void rope_store_kernel(const RopeArgs a, const KvCache kv, const BlockTables tables) {
  const std::size_t t = blockIdx.x;
  const StepToken token = a.tokens[t];
  const float* angles = a.angles + t * a.rotated;
  const std::uint32_t words = kv.head_dim / 2, half = a.rotated / 2;
  if (token.slot != kNone) {
    const std::uint32_t* table = table_of(tables, token.slot);
    for (std::uint32_t i = threadIdx.x; i < kv.n_kv_heads * words; i += kThreads) {
      const std::uint32_t h = i / words, w = i % words;
      const float* k = a.k + t * a.stride + std::size_t{h} * kv.head_dim;
      const float* v = a.v + t * a.stride + std::size_t{h} * kv.head_dim;
      std::uint32_t* to = key_words(kv, table, a.layer, h, token.position) + w;
      to[0] = bf16_pair(turned(a, k, angles, 2 * w), turned(a, k, angles, 2 * w + 1));
      to[std::size_t{kv.block_size} * words] = bf16_pair(v[2 * w], v[2 * w + 1]);
    }
  }
  for (std::uint32_t i = threadIdx.x; i < a.n_heads * half; i += kThreads) {
    const std::uint32_t h = i / half, pair = i % half, first = a.halves ? pair : 2 * pair, second = a.halves ? pair + half : first + 1;
    float* q = a.q + t * a.stride + std::size_t{h} * kv.head_dim;
    const float x = turned(a, q, angles, first), y = turned(a, q, angles, second);
    q[first] = x;
    q[second] = y;
  }
}

}  // namespace

void launch_rope_angles(const StepToken* tokens, std::uint32_t n_tokens, const double* inv_freq, std::uint32_t n_freqs, float* angles,
                        CudaStream stream) {
  launch(&rope_angles_kernel, {n_tokens}, kThreads, stream, tokens, inv_freq, n_freqs, angles);
}

void launch_rope_store(const RopeArgs& args, const KvCache& kv, const BlockTables& tables, CudaStream stream) {
  launch(&rope_store_kernel, {args.n_tokens}, kThreads, stream, args, kv, tables);
}

}  // namespace troupe::kernels
