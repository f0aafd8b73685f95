#include "kernels/cuda/families.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/numbers.h"

namespace troupe::kernels {

namespace {

constexpr unsigned kThreads = 128;
constexpr std::uint32_t kConvTokens = 64;  // of a block
constexpr unsigned kColumns = 8;           // of a warp: 32 bytes of each row of a state are read at once
constexpr unsigned kParts = 32 / kColumns;
static_assert(RecurrentStates::kStrip == 2 * kColumns, "a strip is two warps wide");

// The place of row r's first token among those of the step. By a whole warp.
__device__ inline std::uint32_t first_token_of(const StepRow* rows, std::uint32_t r) {
  std::uint32_t before = 0;
  for (std::uint32_t i = threadIdx.x % 32; i < r; i += 32) before += rows[i].n_tokens;
  return warp_sum(before);
}

// A block per row, 128 channels, and 64 of the row's tokens; a thread per channel. That of the row's end writes the state.
__global__ void causal_conv_kernel(const RecurrentArgs a, const RecurrentStates s) {
  const StepRow row = a.rows[blockIdx.x];
  const std::uint32_t begin = blockIdx.z * kConvTokens, channels = s.channels(), past = s.taps - 1;
  if (row.state_out == kNone || begin >= row.n_tokens) return;
  const std::size_t first = first_token_of(a.rows, blockIdx.x);
  const std::size_t c = static_cast<std::size_t>(blockIdx.y) * kThreads + threadIdx.x;
  if (c >= channels) return;
  const float* before = row.state_in == kNone ? nullptr : s.at(row.state_in, a.layer);
  // The input at position i - past of the row; before the row it is the state's, or 0.
  const auto input = [&](std::uint32_t i) {
    if (i >= past) return a.input[(first + (i - past)) * channels + c];
    return before == nullptr ? 0.0f : before[std::size_t{i} * channels + c];
  };
  const std::uint32_t end = begin + kConvTokens < row.n_tokens ? begin + kConvTokens : row.n_tokens;
  for (std::uint32_t t = begin; t < end; ++t) {
    float sum = 0.0f;
    for (std::uint32_t j = 0; j <= past; ++j) sum = fmaf(a.conv[std::size_t{j} * channels + c], input(t + j), sum);
    a.mixed[(first + t) * channels + c] = sum / (1.0f + exp_float(-sum));
  }
  if (end != row.n_tokens) return;
  float* after = s.at(row.state_out, a.layer);
  for (std::uint32_t j = 0; j < past; ++j) after[std::size_t{j} * channels + c] = input(end + j);
}

__global__ void delta_gates_kernel(float* a, float* b, const float* rate, const float* dt_bias, std::size_t n, std::uint32_t heads) {
  const std::size_t i = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) return;
  const std::uint32_t h = static_cast<std::uint32_t>(i % heads);
  const float x = a[i] + dt_bias[h];
  a[i] = exp_float(-rate[h] * (x > 20.0f ? x : log_float(1.0f + exp_float(x))));
  b[i] = 1.0f / (1.0f + exp_float(-b[i]));
}

// Over the parts of each column; every lane gets it.
__device__ inline float part_sum(float v) {
  for (unsigned apart = 32 / 2; apart >= kColumns; apart /= 2) v += __shfl_xor_sync(~0u, v, static_cast<int>(apart));
  return v;
}

// A block per row, value head and strip of its columns, a warp for half a strip. Lane l has column l % 8, and of it the elements
// l / 8, l / 8 + 4, ...; they stay in registers from the row's first token to its last. k_dim <= 4 kElements.
template <int kElements>
__global__ void delta_rule_kernel(const RecurrentArgs a, const RecurrentStates s) {
  const StepRow row = a.rows[blockIdx.x];
  if (row.state_out == kNone) return;
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32, part = lane / kColumns, in_strip = warp * kColumns + lane % kColumns;
  const std::uint32_t head = blockIdx.y, strip = blockIdx.z, dim = s.k_dim, column = strip * RecurrentStates::kStrip + in_strip;
  const std::size_t channels = s.channels(), q_at = std::size_t{head / (s.v_heads / s.k_heads)} * dim, k_at = q_at + s.key_width();
  const std::size_t at = s.conv_floats() + (std::size_t{head} * s.strips() + strip) * s.strip_floats() + in_strip;
  const bool mine = column < s.v_dim;
  const auto element = [part](int m) { return static_cast<std::uint32_t>(m) * kParts + part; };

  float state[kElements];
  const float* from = row.state_in == kNone ? nullptr : s.at(row.state_in, a.layer) + at;
  TROUPE_UNROLL for (int m = 0; m < kElements; ++m) {
    const std::uint32_t i = element(m);
    state[m] = from == nullptr || i >= dim ? 0.0f : from[std::size_t{i} * RecurrentStates::kStrip];
  }
  const std::size_t first = first_token_of(a.rows, blockIdx.x);
  for (std::size_t t = first; t < first + row.n_tokens; ++t) {
    const float* q = a.mixed + t * channels + q_at;
    const float* k = a.mixed + t * channels + k_at;
    const float decay = a.decay[t * s.v_heads + head], beta = a.beta[t * s.v_heads + head];
    const std::size_t value = std::size_t{head} * s.v_dim + column;
    const float v = mine ? a.mixed[t * channels + 2 * std::size_t{s.key_width()} + value] : 0.0f;
    float held = 0.0f;
    TROUPE_UNROLL for (int m = 0; m < kElements; ++m) {
      const std::uint32_t i = element(m);
      if (i >= dim) continue;
      state[m] *= decay;
      held = fmaf(state[m], k[i], held);
    }
    const float delta = (v - part_sum(held)) * beta;
    float out = 0.0f;
    TROUPE_UNROLL for (int m = 0; m < kElements; ++m) {
      const std::uint32_t i = element(m);
      if (i >= dim) continue;
      state[m] = fmaf(delta, k[i], state[m]);
      out = fmaf(state[m], q[i], out);
    }
    out = part_sum(out);
    if (mine && part == 0) a.out[t * s.value_width() + value] = out;
  }
  float* to = s.at(row.state_out, a.layer) + at;
  TROUPE_UNROLL for (int m = 0; m < kElements; ++m) {
    const std::uint32_t i = element(m);
    if (i < dim) to[std::size_t{i} * RecurrentStates::kStrip] = state[m];
  }
}

// A thread per element of a pair of heads.
__global__ void split_heads_kernel(const float* from, std::size_t n, std::uint32_t n_heads, std::uint32_t width, float* first,
                                   std::size_t stride, float* second) {
  const std::size_t i = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) return;
  const std::size_t pair = i / (2 * std::size_t{width}), in_pair = i % (2 * std::size_t{width}), t = pair / n_heads, h = pair % n_heads;
  if (in_pair < width)
    first[t * stride + h * width + in_pair] = from[i];
  else
    second[pair * width + (in_pair - width)] = from[i];
}

__global__ void sigmoid_mul_kernel(float* x, const float* gate, std::size_t n) {
  const std::size_t i = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < n) x[i] = x[i] / (1.0f + exp_float(-gate[i]));
}

}  // namespace

void launch_causal_conv(const RecurrentArgs& args, const RecurrentStates& states, CudaStream stream) {
  if (args.n_rows == 0) return;
  const std::size_t longest = args.n_tokens - args.n_rows + 1;  // no row has more
  launch(&causal_conv_kernel,
         {args.n_rows, divide_up<std::size_t>(states.channels(), kThreads), divide_up<std::size_t>(longest, kConvTokens)}, kThreads, stream,
         args, states);
}

void launch_delta_gates(float* a, float* b, const float* rate, const float* dt_bias, std::uint32_t n_tokens, std::uint32_t heads,
                        CudaStream stream) {
  const std::size_t n = std::size_t{n_tokens} * heads;
  launch(&delta_gates_kernel, {divide_up<std::size_t>(n, kThreads)}, kThreads, stream, a, b, rate, dt_bias, n, heads);
}

void launch_delta_rule(const RecurrentArgs& args, const RecurrentStates& states, CudaStream stream) {
  const Grid grid{args.n_rows, states.v_heads, states.strips()};
  constexpr unsigned kWarps = RecurrentStates::kStrip / kColumns;
  if (states.k_dim <= 32) return launch(&delta_rule_kernel<32 / kParts>, grid, 32 * kWarps, stream, args, states);
  if (states.k_dim <= 128) return launch(&delta_rule_kernel<128 / kParts>, grid, 32 * kWarps, stream, args, states);
  launch(&delta_rule_kernel<kMostKeyElements / kParts>, grid, 32 * kWarps, stream, args, states);
}

void launch_split_heads(const float* from, std::uint32_t n_tokens, std::uint32_t n_heads, std::uint32_t width, float* first,
                        std::size_t stride, float* second, CudaStream stream) {
  const std::size_t n = std::size_t{n_tokens} * n_heads * 2 * width;
  launch(&split_heads_kernel, {divide_up<std::size_t>(n, kThreads)}, kThreads, stream, from, n, n_heads, width, first, stride, second);
}

void launch_sigmoid_mul(float* x, const float* gate, std::size_t n, CudaStream stream) {
  launch(&sigmoid_mul_kernel, {divide_up<std::size_t>(n, kThreads)}, kThreads, stream, x, gate, n);
}

}  // namespace troupe::kernels
