// Chooses a token from one row of logits, and gives log-probabilities: what the host does, and the plain definition that a
// device must match bit for bit.
//
// A candidate is an id whose logit is neither NaN nor -infinity. Candidates go in descending order of logit, ties by
// lowest id; their weights are integers (sampling_math.h), so that a sum over them has no order. One scratch serves one
// thread.
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

// Buffers for a vocabulary of up to kMaxVocab ids. Nothing is allocated after the first row of the largest one.
class SamplingScratch {
 public:
  explicit SamplingScratch(std::uint32_t vocab_size = 0) { grow(vocab_size); }

 private:
  friend std::optional<std::uint32_t> sample_token(std::span<const float>, const SamplingShape&, std::uint32_t, SamplingScratch&);
  friend std::span<const std::uint64_t> best_tokens(std::span<const float>, std::uint32_t, SamplingScratch&);
  struct Candidate {
    std::uint64_t key;
    std::uint64_t weight;
  };
  void grow(std::size_t vocab_size);
  // The keys of the `n` best candidates (all if there are fewer), in no order.
  std::span<std::uint64_t> best(std::span<const float> logits, std::size_t n);
  // Of candidates_[0, n): the first key, in order, at which the running sum reaches `enough`, which the whole sum does.
  std::uint64_t reach(std::size_t n, std::uint64_t enough);

  std::vector<std::uint64_t> keys_;
  std::vector<Candidate> candidates_, narrowed_;
};

// The best candidate; none if there is no candidate.
std::optional<std::uint32_t> best_token(std::span<const float> logits);

// Weights e^((logit - max) / temperature); of the top_k best; of these the fewest best whose weights reach top_p of the
// sum; of these those of at least min_p of the best one's weight; of these the first whose running sum exceeds draw / 2^24
// of the sum. draw < 2^24 (philox_draw). None if there is no candidate.
std::optional<std::uint32_t> sample_token(std::span<const float> logits, const SamplingShape& shape, std::uint32_t draw,
                                          SamplingScratch& scratch);

// Keys (candidate_id gives the id) of the `n` best candidates, in order; valid until the scratch is used again.
std::span<const std::uint64_t> best_tokens(std::span<const float> logits, std::uint32_t n, SamplingScratch& scratch);

// log softmax of a row.
class LogSoftmax {
 public:
  explicit LogSoftmax(std::span<const float> logits);
  float at(float logit) const;

 private:
  float max_;
  float log_sum_;
};

}  // namespace troupe::kernels
