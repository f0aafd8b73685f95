#include "actors/sampler/history.h"

#include <algorithm>

#include "kernels/sampling_math.h"

namespace troupe::actors {

void History::start(const Request& request, std::uint32_t vocab_size) {
  outputs_ = 0;
  entries_.clear();
  for (Token id : request.prompt) entries_.push_back({id, 0});
  auto by_id = [](const Entry& a, const Entry& b) { return a.id < b.id; };
  auto same_id = [](const Entry& a, const Entry& b) { return a.id == b.id; };
  std::sort(entries_.begin(), entries_.end(), by_id);
  entries_.erase(std::unique(entries_.begin(), entries_.end(), same_id), entries_.end());
  entries_.reserve(std::min<std::size_t>(entries_.size() + request.stop.max_tokens, vocab_size));
}

void History::add(std::span<const Token> output) {
  for (Token id : output) {
    auto at = std::lower_bound(entries_.begin(), entries_.end(), id, [](const Entry& e, Token t) { return e.id < t; });
    if (at == entries_.end() || at->id != id) at = entries_.insert(at, {id, 0});
    ++at->outputs;
  }
  outputs_ += static_cast<std::uint32_t>(output.size());
}

void History::apply(const SamplingParams& params, std::span<float> logits) const {
  for (const Entry& e : entries_) {
    if (e.id >= logits.size()) break;
    float& x = logits[e.id];
    x = kernels::penalized(x, e.outputs, params.repetition_penalty, params.presence_penalty, params.frequency_penalty);
  }
}

}  // namespace troupe::actors
