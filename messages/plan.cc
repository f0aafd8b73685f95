#include "messages/plan.h"

#include <fmt/format.h>

namespace troupe {
namespace {

// A chunk of a prompt: it starts a sequence, has several ids, or wants no token. The last id of a prompt in a chunk of
// its own cannot be told from a decode row, and needs not be.
bool is_prefill(const Row& row) {
  return !row.source.is_feed() && (row.n_tokens > 1 || row.position == 0 || row.readback == RowReadback::none);
}

}  // namespace

std::string label(const Row& x) {
  std::string s = fmt::format("{} e{} @{}", label(x.seq), x.epoch, x.position);
  if (x.n_tokens != 1) s += fmt::format("+{}", x.n_tokens);
  s += ' ';
  s += label(x.source);
  if (!x.mask.empty()) s += ' ' + label(x.mask);
  if (x.readback == RowReadback::none) s += " none";
  if (x.readback == RowReadback::logits) s += " logits";
  if (x.readback == RowReadback::sample) s += " sample";
  return s;
}

std::string label(const StepPlan& x) {
  std::size_t prefill = 0, fed = 0, tokens = 0;
  for (const Row& row : x.rows) {
    prefill += is_prefill(row) ? 1 : 0;
    fed += row.source.is_feed() ? 1 : 0;
    tokens += row.n_tokens;
  }
  const std::size_t n = x.rows.size();
  const char* const aside = x.stream == kPrefillStream ? " aside" : "";
  if (n == 0) return fmt::format("Effects{{{}}}", x.effects.size());
  if (prefill == n) return fmt::format("Prefill{{n={}, tokens={}}}{}", n, tokens, aside);
  if (prefill != 0) return fmt::format("Mixed{{n={}, fed={}, tokens={}}}{}", n, fed, tokens, aside);
  if (fed != 0) return fmt::format("DecodeFed{{n={}, fed={}}}{}", n, fed, aside);
  return fmt::format("Decode{{n={}}}{}", n, aside);
}

std::string label(const LaunchedStep& x) {
  std::size_t fed = 0;
  for (const DeviceRow& row : x.rows) fed += row.source == FeedSource::Kind::feed ? 1 : 0;
  return fmt::format("Step{{{}, slot={}, n={}, fed={}}}{}", label(x.ticket), x.slot.slot, x.rows.size(), fed,
                     x.slot.stream == kPrefillStream ? " aside" : "");
}

}  // namespace troupe
