#include "kernels/sampling.h"

#include <algorithm>
#include <array>
#include <limits>

#include "kernels/sampling_math.h"

namespace troupe::kernels {

namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// False for NaN and -infinity.
bool is_candidate(float logit) { return logit > kMinusInfinity; }

// e^((logit - max) / temperature); 1 where the logit is the maximum, also an infinite one.
float weight(float logit, float max, float temperature) { return logit == max ? 1.0f : exp_float((logit - max) / temperature); }

// Stable, by the upper 32 bits, 11 at a time. The keys come in ascending order of id (the lower 32 bits).
void radix_sort(std::uint64_t* keys, std::uint64_t* spare, std::size_t n) {
  constexpr int kBits = 11;
  constexpr std::size_t kBuckets = std::size_t{1} << kBits;
  std::array<std::uint32_t, kBuckets> starts;
  std::uint64_t* from = keys;
  std::uint64_t* to = spare;
  for (int shift = 32; shift < 64; shift += kBits) {
    auto bucket = [shift](std::uint64_t key) { return (key >> shift) & (kBuckets - 1); };
    starts.fill(0);
    for (std::size_t i = 0; i < n; ++i) ++starts[bucket(from[i])];
    std::uint32_t sum = 0;
    for (std::uint32_t& s : starts) {
      const std::uint32_t count = s;
      s = sum;
      sum += count;
    }
    for (std::size_t i = 0; i < n; ++i) to[starts[bucket(from[i])]++] = from[i];
    std::swap(from, to);
  }
  // Three passes: the result lies in the spare.
  std::copy(spare, spare + n, keys);
}

}  // namespace

SamplingScratch::SamplingScratch(std::uint32_t vocab_size) : keys_(vocab_size), spare_(vocab_size), weights_(vocab_size) {}

std::span<const std::uint64_t> SamplingScratch::order(std::span<const float> logits, std::size_t n) {
  std::size_t count = 0;
  const std::size_t size = std::min(logits.size(), keys_.size());
  for (std::uint32_t id = 0; id < size; ++id) {
    if (is_candidate(logits[id])) keys_[count++] = candidate_key(logits[id], id);
  }
  const auto begin = keys_.begin();
  const auto end = begin + static_cast<std::ptrdiff_t>(count);
  if (n < count) {
    // Keys are distinct, so which n are the best does not depend on the algorithm.
    const auto cut = begin + static_cast<std::ptrdiff_t>(n);
    std::nth_element(begin, cut, end);
    std::sort(begin, cut);
    return {keys_.data(), n};
  }
  if (count < 1024) {
    std::sort(begin, end);
  } else {
    radix_sort(keys_.data(), spare_.data(), count);
  }
  return {keys_.data(), count};
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

std::optional<std::uint32_t> sample_token(std::span<const float> logits, const SamplingShape& shape, float uniform, SamplingScratch& scratch) {
  const std::size_t limit = shape.top_k == 0 ? logits.size() : shape.top_k;
  const auto keys = scratch.order(logits, limit);
  if (keys.empty()) return std::nullopt;
  const float max = logits[candidate_id(keys[0])];
  float* w = scratch.weights_.data();
  std::size_t n = keys.size();
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) {
    w[i] = weight(logits[candidate_id(keys[i])], max, shape.temperature);
    sum += w[i];
  }
  if (shape.top_p < 1) {
    const double enough = static_cast<double>(shape.top_p) * sum;
    double before = w[0];
    std::size_t kept = 1;
    while (kept < n && before < enough) before += w[kept++];
    n = kept;
  }
  if (shape.min_p > 0) {
    while (n > 1 && w[n - 1] < shape.min_p) --n;
  }
  sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += w[i];
  const double target = static_cast<double>(uniform) * sum;
  double running = 0;
  for (std::size_t i = 0; i < n; ++i) {
    running += w[i];
    if (running > target) return candidate_id(keys[i]);
  }
  return candidate_id(keys[0]);  // not reached for a uniform below 1: the last running sum is the sum
}

std::span<const std::uint64_t> best_tokens(std::span<const float> logits, std::uint32_t n, SamplingScratch& scratch) {
  return scratch.order(logits, n);
}

LogSoftmax::LogSoftmax(std::span<const float> logits) : max_(kMinusInfinity) {
  for (float x : logits) {
    if (x > max_) max_ = x;
  }
  constexpr std::size_t kLanes = 256;
  std::array<double, kLanes> lanes{};
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (is_candidate(logits[i])) lanes[i % kLanes] += weight(logits[i], max_, 1.0f);
  }
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  log_sum_ = log_float(static_cast<float>(lanes[0]));
}

float LogSoftmax::at(float logit) const { return (logit == max_ ? 0.0f : logit - max_) - log_sum_; }

}  // namespace troupe::kernels
