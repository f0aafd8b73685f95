#include "tools/troupe/compare.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string_view>

namespace troupe::tools {
namespace {

bool same_bits(float a, float b) { return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b); }

bool same_best(const TokenBest& a, const TokenBest& b) {
  return same_bits(a.logprob, b.logprob) &&
         std::equal(a.best.begin(), a.best.end(), b.best.begin(), b.best.end(),
                    [](const TokenLogprob& x, const TokenLogprob& y) { return x.id == y.id && same_bits(x.logprob, y.logprob); });
}

bool ended_early(const RequestOutcome& o) { return o.finish == FinishReason::cancelled || o.finish == FinishReason::deadline; }

bool is_prefix(std::string_view a, std::string_view b) { return a.size() <= b.size() ? b.starts_with(a) : a.starts_with(b); }

// The first output position that differs, if any does.
std::optional<std::size_t> compare(const RequestOutcome& a, const RequestOutcome& b) {
  const std::size_t common = std::min(a.token_ids.size(), b.token_ids.size());
  for (std::size_t i = 0; i < common; ++i) {
    if (a.token_ids[i] != b.token_ids[i]) return i;
    const bool in_a = i < a.logprobs.size(), in_b = i < b.logprobs.size();
    if (in_a != in_b || (in_a && !same_best(a.logprobs[i], b.logprobs[i]))) return i;
  }
  if (ended_early(a) || ended_early(b)) {
    if (is_prefix(a.text, b.text)) return std::nullopt;
    return common;
  }
  if (a.token_ids.size() != b.token_ids.size() || a.text != b.text || a.finish != b.finish || a.error.code != b.error.code) return common;
  return std::nullopt;
}

}  // namespace

std::optional<Divergence> first_divergence(const std::vector<RequestOutcome>& a, const std::vector<RequestOutcome>& b) {
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (const auto token = compare(a[i], b[i])) return Divergence{a[i].id, *token};
  }
  if (a.size() != b.size()) return Divergence{a.size() < b.size() ? b[a.size()].id : a[b.size()].id, 0};
  return std::nullopt;
}

}  // namespace troupe::tools
