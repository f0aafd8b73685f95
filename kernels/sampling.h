// Chooses a token from one row of logits, and gives log-probabilities. The plain definition that a device must match.
//
// A candidate is an id whose logit is neither NaN nor -infinity. Candidates go in descending order of logit, ties by
// lowest id, and every sum over them runs in that order, in double over float terms. One scratch serves one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace troupe::kernels {

struct SamplingShape {
  float temperature = 1;    // > 0
  std::uint32_t top_k = 0;  // 0 = off
  float top_p = 1;          // 1 = off
  float min_p = 0;          // 0 = off
};

// Buffers of a vocabulary's size; nothing is allocated after it was made.
class SamplingScratch {
 public:
  explicit SamplingScratch(std::uint32_t vocab_size);

 private:
  friend std::optional<std::uint32_t> sample_token(std::span<const float>, const SamplingShape&, float, SamplingScratch&);
  friend std::span<const std::uint64_t> best_tokens(std::span<const float>, std::uint32_t, SamplingScratch&);
  // The keys of the `n` best candidates (all if there are fewer), in order.
  std::span<const std::uint64_t> order(std::span<const float> logits, std::size_t n);

  std::vector<std::uint64_t> keys_, spare_;
  std::vector<float> weights_;
};

// The best candidate; none if there is no candidate.
std::optional<std::uint32_t> best_token(std::span<const float> logits);

// Weights e^((logit - max) / temperature); then the top_k best; then the fewest best whose weights reach top_p of the
// sum; then those of at least min_p of the best one's weight; then the first whose running sum exceeds uniform times the
// sum. `uniform` in [0, 1). None if there is no candidate.
std::optional<std::uint32_t> sample_token(std::span<const float> logits, const SamplingShape& shape, float uniform, SamplingScratch& scratch);

// Keys (candidate_id gives the id) of the `n` best candidates, in order; valid until the scratch is used again.
std::span<const std::uint64_t> best_tokens(std::span<const float> logits, std::uint32_t n, SamplingScratch& scratch);

// log softmax of a row. The sum runs in 256 lanes (id modulo 256), each in ascending order of id, which are then added
// in halves: 128 + 128, 64 + 64 and so on.
class LogSoftmax {
 public:
  explicit LogSoftmax(std::span<const float> logits);
  float at(float logit) const;

 private:
  float max_;
  float log_sum_;
};

}  // namespace troupe::kernels
