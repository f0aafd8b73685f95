// What the sampler remembers of one request for its penalties: which ids its prompt had, and how often its output had
// each. Sparse: sorted by id, one entry per distinct id. Owned by the sampler's core.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "messages/ids.h"
#include "messages/request.h"

namespace troupe::actors {

class History {
 public:
  // Forgets everything, and counts the prompt. Sets memory aside for the whole output, so that add() allocates nothing.
  void start(const Request& request, std::uint32_t vocab_size);
  // Ids outside the vocabulary (logits.size()) are passed over in apply().
  void add(std::span<const Token> output);
  std::uint32_t outputs() const { return outputs_; }

  // As vLLM: logit / r, or logit * r if it is not positive, for every id of prompt and output; then, for every id of the
  // output, less its count times the frequency penalty, and less the presence penalty.
  void apply(const SamplingParams& params, std::span<float> logits) const;

 private:
  struct Entry {
    Token id = 0;
    std::uint32_t outputs = 0;
  };
  std::vector<Entry> entries_;
  std::uint32_t outputs_ = 0;
};

}  // namespace troupe::actors
