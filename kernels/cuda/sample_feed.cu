#include "kernels/cuda/families.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/numbers.h"
#include "kernels/philox.h"

namespace troupe::kernels {

namespace {

using Word = unsigned long long;  // what CUDA's 64-bit atomics take

constexpr std::uint32_t kInPrompt = 1u << 31;  // in a count
constexpr int kBits = 11;                      // of a key, at a time
constexpr unsigned kBuckets = 1u << kBits;

struct Shared {
  Word sums[kBuckets];
  Word of_warp[32];
  Word left;
  unsigned bucket;
};

template <class T, class F>
__device__ inline T block_reduce(T mine, T none, Word (&of_warp)[32], F&& join) {
  for (int apart = 16; apart != 0; apart /= 2) mine = join(mine, __shfl_xor_sync(~0u, mine, apart));
  const unsigned lane = threadIdx.x % 32;
  __syncthreads();  // of_warp may still be read from the call before
  if (lane == 0) of_warp[threadIdx.x / 32] = mine;
  __syncthreads();
  mine = lane < blockDim.x / 32 ? of_warp[lane] : none;
  for (int apart = 16; apart != 0; apart /= 2) mine = join(mine, __shfl_xor_sync(~0u, mine, apart));
  return mine;
}

__device__ inline Word block_sum(Word mine, Word (&of_warp)[32]) {
  return block_reduce(mine, Word{0}, of_warp, [](Word a, Word b) { return a + b; });
}
__device__ inline Word block_min(Word mine, Word (&of_warp)[32]) {
  return block_reduce(mine, ~Word{0}, of_warp, [](Word a, Word b) { return a < b ? a : b; });
}

// The best candidate behind `after` (0: the best of all); all ones: there is none. Every thread gets it.
__device__ inline Word next_best(const float* v, std::uint32_t vocab, Word after, Word (&of_warp)[32]) {
  Word mine = ~Word{0};
  for (std::uint32_t id = threadIdx.x; id < vocab; id += blockDim.x) {
    if (!is_candidate(v[id])) continue;
    const Word key = candidate_key(v[id], id);
    if (key > after && key < mine) mine = key;
  }
  return block_min(mine, of_warp);
}

// Which candidates count, and how much.
struct Weigh {
  const float* v;
  std::uint32_t vocab;
  float max, temperature;
  float min_p;
  Word last;    // candidates up to this key
  bool counts;  // each counts 1

  __device__ Word of(std::uint32_t id, Word key) const {
    if (key > last) return 0;
    if (counts) return 1;
    const float w = candidate_weight(v[id], max, temperature);
    return w < min_p ? 0 : fixed_weight(w);
  }
  // f(key, weight) for this thread's candidates.
  template <class F>
  __device__ void each(F&& f) const {
    for (std::uint32_t id = threadIdx.x, threads = blockDim.x; id < vocab; id += threads) {
      if (!is_candidate(v[id])) continue;
      const Word key = candidate_key(v[id], id);
      f(key, of(id, key));
    }
  }
  __device__ Word sum(Word (&of_warp)[32]) const {
    Word mine = 0;
    each([&](Word, Word weight) { mine += weight; });
    return block_sum(mine, of_warp);
  }
};

// The first key, in order, at which the running sum reaches `enough`, which the whole sum does. Every thread gets it.
__device__ inline Word reach(const Weigh& weigh, Word enough, Shared& s) {
  // A key is a logit's 32 bits over an id of at most 22: five digits, and ten bits between them that are always 0.
  constexpr int kShifts[] = {53, 42, 32, 11, 0};
  Word prefix = 0;
  int above = 64;  // bits of a key below the prefix
  for (const int shift : kShifts) {
    const int zeros = above - kBits - shift > 0 ? above - kBits - shift : 0;
    const int bits = above - shift - zeros;  // 11, but 10 for the logit's last digit
    prefix <<= zeros;
    for (unsigned b = threadIdx.x, threads = blockDim.x; b < kBuckets; b += threads) s.sums[b] = 0;
    __syncthreads();
    weigh.each([&](Word key, Word weight) {
      if (weight != 0 && (above == 64 || key >> (shift + bits) == prefix)) atomicAdd(&s.sums[key >> shift & ((1u << bits) - 1)], weight);
    });
    __syncthreads();
    if (threadIdx.x < 32) {
      constexpr unsigned kOwn = kBuckets / 32;
      const unsigned lane = threadIdx.x;
      Word own = 0;
      for (unsigned b = 0; b < kOwn; ++b) own += s.sums[lane * kOwn + b];
      Word upto = own;  // of the lanes up to this one
      for (unsigned apart = 1; apart < 32; apart *= 2) {
        const Word of_lower = __shfl_sync(~0u, upto, static_cast<int>((lane - apart) % 32));
        if (lane >= apart) upto += of_lower;
      }
      Word before = upto - own;
      if (before < enough && enough <= upto) {
        unsigned b = lane * kOwn;
        for (; before + s.sums[b] < enough; ++b) before += s.sums[b];
        s.bucket = b;
        s.left = enough - before;
      }
    }
    __syncthreads();
    prefix = prefix << bits | s.bucket;
    enough = s.left;
    above = shift;
  }
  return prefix;
}

// For every id of the row's history, once. counts is 0 before and after.
__device__ inline void penalize(const SampleArgs& a, const SampleRow& s, const StepRow& row, float* work, std::uint32_t* counts) {
  const std::uint32_t end = row.position + row.n_tokens, length = end < a.history_stride ? end : a.history_stride;
  const std::uint32_t* ids = a.history + std::size_t{row.slot} * a.history_stride;
  for (std::uint32_t p = threadIdx.x; p < length; p += blockDim.x) {
    if (ids[p] >= a.vocab) continue;
    if (p < s.prompt_length) {
      atomicOr(&counts[ids[p]], kInPrompt);
    } else {
      atomicAdd(&counts[ids[p]], 1u);
    }
  }
  __syncthreads();
  for (std::uint32_t p = threadIdx.x; p < length; p += blockDim.x) {
    const std::uint32_t id = ids[p], count = id < a.vocab ? atomicExch(&counts[id], 0u) : 0;
    if (count == 0) continue;  // another position had the same id
    work[id] = penalized(work[id], count & ~kInPrompt, s.repetition_penalty, s.presence_penalty, s.frequency_penalty);
  }
  __syncthreads();
}

__device__ inline void write_logprobs(const SampleArgs& a, const float* raw, std::uint32_t chosen, std::uint32_t n_best, RowLogprobs& out,
                                      Shared& s) {
  const Word best = next_best(raw, a.vocab, 0, s.of_warp);
  const float max = best == ~Word{0} ? float_from_bits(0xff800000u) : raw[candidate_id(best)];
  const float log_sum = log_of_sum(Weigh{raw, a.vocab, max, 1.0f, 0.0f, ~Word{0}, false}.sum(s.of_warp));
  if (n_best > RowLogprobs::kMaxBest) n_best = RowLogprobs::kMaxBest;
  std::uint32_t n = 0;
  for (Word key = best; n < n_best && key != ~Word{0}; key = next_best(raw, a.vocab, key, s.of_warp), ++n) {
    if (threadIdx.x != 0) continue;
    out.ids[n] = candidate_id(key);
    out.best[n] = log_probability(raw[candidate_id(key)], max, log_sum);
  }
  if (threadIdx.x != 0) return;
  out.n_best = n;
  out.chosen = log_probability(raw[chosen], max, log_sum);
}

// A block per sampled row.
__global__ void __launch_bounds__(kMostThreads) sample_feed_kernel(const SampleArgs a, float* work, std::uint32_t* counts) {
  TROUPE_SHARED(Shared, shared);
  const SampleRow s = a.samples[blockIdx.x];
  const StepRow row = a.rows[s.row];
  std::uint32_t* kept = a.history + std::size_t{row.slot} * a.history_stride;
  for (std::uint32_t p = threadIdx.x; p < s.n_history && p < a.history_stride; p += blockDim.x) kept[p] = a.ids[s.history_begin + p];
  if (a.cells[s.row].status != Status::ok) return;
  const float* raw = a.logits + static_cast<std::size_t>(row.output) * a.vocab;
  const float* v = raw;
  if (s.penalizes() || s.n_biases != 0 || s.n_bars != 0 || row.mask_a < a.vocab || row.mask_b < a.vocab) {
    float* own = work + static_cast<std::size_t>(blockIdx.x) * a.vocab;
    for (std::uint32_t id = threadIdx.x; id < a.vocab; id += blockDim.x) own[id] = raw[id];
    __syncthreads();
    if (s.penalizes()) penalize(a, s, row, own, counts + static_cast<std::size_t>(blockIdx.x) * a.vocab);
    if (threadIdx.x == 0) {  // an id may be named twice
      for (std::uint32_t b = s.bias_begin; b < s.bias_begin + s.n_biases; ++b) {
        if (a.biases[b].id < a.vocab) own[a.biases[b].id] += a.biases[b].bias;
      }
      for (std::uint32_t b = s.bar_begin; b < s.bar_begin + s.n_bars; ++b) {
        if (a.ids[b] < a.vocab) own[a.ids[b]] = float_from_bits(0xff800000u);
      }
      if (row.mask_a < a.vocab) own[row.mask_a] = float_from_bits(0xff800000u);
      if (row.mask_b < a.vocab) own[row.mask_b] = float_from_bits(0xff800000u);
    }
    __syncthreads();
    v = own;
  }

  Word key = next_best(v, a.vocab, 0, shared.of_warp);
  const bool found = key != ~Word{0};
  if (found && s.temperature > 0.0f) {
    Weigh weigh{v, a.vocab, v[candidate_id(key)], s.temperature, 0.0f, ~Word{0}, true};
    if (s.top_k != 0 && weigh.sum(shared.of_warp) > s.top_k) weigh.last = reach(weigh, s.top_k, shared);
    weigh.counts = false;
    if (s.top_p < 1.0f) weigh.last = reach(weigh, enough_for_top_p(s.top_p, weigh.sum(shared.of_warp)), shared);
    weigh.min_p = s.min_p;
    key = reach(weigh, drawn_weight(philox_draw(s.seed, s.output_index, 0), weigh.sum(shared.of_warp)), shared);
  }
  const std::uint32_t id = found ? candidate_id(key) : 0;
  if (threadIdx.x == 0) {
    const Status status = found ? Status::ok : Status::no_token;
    a.cells[s.row] = {id, status, a.tag};
    a.readback[s.row].id = id;
    a.readback[s.row].status = status;
  }
  if (found && s.logprobs_row != kNone) write_logprobs(a, raw, id, s.n_best, a.logprobs[s.logprobs_row], shared);
}

}  // namespace

void launch_sample_feed(const SampleArgs& args, float* work, std::uint32_t* counts, CudaStream stream, unsigned threads) {
  launch(&sample_feed_kernel, {args.n}, threads, stream, args, work, counts);
}

}  // namespace troupe::kernels
