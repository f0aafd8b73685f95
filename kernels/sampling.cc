#include "kernels/sampling.h"

#include <algorithm>
#include <array>
#include <limits>

#include "kernels/sampling_math.h"

namespace troupe::kernels {

namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

float largest(std::span<const float> logits) {
  float max = kMinusInfinity;
  for (float x : logits) max = x > max ? x : max;
  return max;
}

}  // namespace

void SamplingScratch::grow(std::size_t vocab_size) {
  if (vocab_size <= keys_.size()) return;
  keys_.resize(vocab_size);
  candidates_.resize(vocab_size);
  narrowed_.resize(vocab_size);
}

std::span<std::uint64_t> SamplingScratch::best(std::span<const float> logits, std::size_t n) {
  grow(logits.size());
  std::size_t count = 0;
  for (std::uint32_t id = 0; id < logits.size(); ++id) {
    keys_[count] = candidate_key(logits[id], id);
    count += is_candidate(logits[id]) ? 1 : 0;
  }
  if (n < count) {
    // Keys are distinct, so which n are the best does not depend on the algorithm.
    const auto begin = keys_.begin();
    std::nth_element(begin, begin + static_cast<std::ptrdiff_t>(n), begin + static_cast<std::ptrdiff_t>(count));
    count = n;
  }
  return {keys_.data(), count};
}

// Narrows the candidates down to those that share the digits of the one it looks for, 11 bits at a time, until few are left.
std::uint64_t SamplingScratch::reach(std::size_t n, std::uint64_t enough) {
  constexpr int kBits = 11;
  constexpr std::size_t kFew = 64;
  std::array<std::uint64_t, std::size_t{1} << kBits> sums;
  Candidate* from = candidates_.data();
  Candidate* to = narrowed_.data();
  for (int shift = 64 - kBits; shift > 0 && n > kFew; shift -= kBits) {
    const auto digit = [&](const Candidate& c) { return (c.key >> shift) & (sums.size() - 1); };
    sums.fill(0);
    for (std::size_t i = 0; i < n; ++i) sums[digit(from[i])] += from[i].weight;
    std::size_t here = 0;
    while (sums[here] < enough) enough -= sums[here++];
    std::size_t kept = 0;
    for (std::size_t i = 0; i < n; ++i) {
      to[kept] = from[i];
      kept += digit(from[i]) == here ? 1 : 0;
    }
    n = kept;
    from = to;
  }
  std::sort(from, from + n, [](const Candidate& a, const Candidate& b) { return a.key < b.key; });
  std::size_t i = 0;
  while (from[i].weight < enough) enough -= from[i++].weight;
  return from[i].key;
}

std::optional<std::uint32_t> best_token(std::span<const float> logits) {
  float best = kMinusInfinity;
  std::optional<std::uint32_t> id;
  for (std::uint32_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > best) {
      best = logits[i];
      id = i;
    }
  }
  return id;
}

std::optional<std::uint32_t> sample_token(std::span<const float> logits, const SamplingShape& shape, std::uint32_t draw,
                                          SamplingScratch& scratch) {
  const std::span<const std::uint64_t> keys = scratch.best(logits, shape.top_k == 0 ? logits.size() : shape.top_k);
  if (keys.empty()) return std::nullopt;
  const float max = largest(logits);
  std::uint64_t sum = 0;
  std::size_t n = 0;
  const auto keep = [&](std::uint64_t key, std::uint64_t weight) {
    scratch.candidates_[n] = {key, weight};
    sum += weight;
    n += weight != 0 ? 1 : 0;
  };
  const auto weight_of = [&](std::uint64_t key) { return candidate_weight(logits[candidate_id(key)], max, shape.temperature); };
  for (const std::uint64_t key : keys) keep(key, fixed_weight(weight_of(key)));
  if (shape.top_p < 1 || shape.min_p > 0) {
    const std::uint64_t last = shape.top_p < 1 ? scratch.reach(n, enough_for_top_p(shape.top_p, sum)) : ~std::uint64_t{0};
    const std::size_t all = n;
    n = sum = 0;
    for (std::size_t i = 0; i < all; ++i) {
      const auto [key, weight] = scratch.candidates_[i];
      if (key <= last && (shape.min_p == 0 || weight_of(key) >= shape.min_p)) keep(key, weight);
    }
  }
  return candidate_id(scratch.reach(n, drawn_weight(draw, sum)));
}

std::span<const std::uint64_t> best_tokens(std::span<const float> logits, std::uint32_t n, SamplingScratch& scratch) {
  const std::span<std::uint64_t> keys = scratch.best(logits, n);
  std::sort(keys.begin(), keys.end());
  return keys;
}

LogSoftmax::LogSoftmax(std::span<const float> logits) : max_(largest(logits)) {
  std::uint64_t sum = 0;
  for (float x : logits) sum += is_candidate(x) ? fixed_weight(candidate_weight(x, max_, 1.0f)) : 0;
  log_sum_ = log_of_sum(sum);
}

float LogSoftmax::at(float logit) const { return log_probability(logit, max_, log_sum_); }

}  // namespace troupe::kernels
