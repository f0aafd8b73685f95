// The sampler: logits -> token and logprobs, for rows that the device does not choose itself. Keeps penalty counts per
// request. Philox 4x32-10 (key = seed, counter = {output index, choice}); candidates in descending order of logit, ties
// by lowest id, sums in that order, so that a device can give the same bits.
//
// Deterministic; one thread at a time (the sampler's own).
#pragma once

#include <memory>

#include "actors/outbox.h"
#include "messages/protocol.h"

namespace troupe::actors {

using SamplerOutbox = Outbox<Sampled>;

class SamplerCore {
 public:
  explicit SamplerCore(std::uint32_t vocab_size);
  ~SamplerCore();

  void on(const Sample& m, TimeNs now, SamplerOutbox& out);

  std::size_t requests() const;  // whose counts are kept

 private:
  struct State;
  std::unique_ptr<State> s_;
};

}  // namespace troupe::actors
