// The one place that decides whether a request gets a row in the next step, and from where its input comes.
#include <algorithm>

#include "actors/scheduler/state.h"

namespace troupe::actors {

// Ends of the sequence until min_tokens, and a closed thinking block's two.
const std::vector<Token>& SchedulerCore::State::barred(const Live& r, std::uint32_t output_index) {
  std::vector<Token>& out = barred_ids;
  out.clear();
  const Request& q = *r.request;
  if (output_index < q.stop.min_tokens) {
    if (!q.stop.ignore_eos) out.insert(out.end(), model.eos_ids.begin(), model.eos_ids.end());
    out.insert(out.end(), q.stop.stop_token_ids.begin(), q.stop.stop_token_ids.end());
  }
  if (r.closed_thinking) {
    out.push_back(q.think->bar_a);
    out.push_back(q.think->bar_b);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

RowMask SchedulerCore::State::mask_for(const Live& r, std::uint32_t output_index) {
  if (!r.bars(output_index)) return {};
  const std::vector<Token>& ids = barred(r, output_index);
  RowMask mask;
  if (!ids.empty()) mask.a = ids[0];
  if (ids.size() > 1) mask.b = ids[1];
  return mask;
}

// Who chooses output `output_index`. The device's masked argmax knows two barred ids and no sampling; a device that samples
// knows all that a request can ask for.
RowReadback SchedulerCore::State::chooser(const Live& r, std::uint32_t output_index) {
  if (!r.samples && !(r.bars(output_index) && barred(r, output_index).size() > 2)) return RowReadback::argmax;
  const bool device = model.supports_device_sampling && r.request->sampling.may_sample_on_device();
  return device ? RowReadback::sample : RowReadback::logits;
}

std::uint32_t SchedulerCore::State::sample_words(const Live& r, std::uint32_t output_index) {
  std::size_t n = r.history_sent ? 0 : r.opened_len;
  n += 2 * r.request->sampling.logit_bias.size();
  if (r.bars(output_index)) n += barred(r, output_index).size();
  return static_cast<std::uint32_t>(n);
}

bool SchedulerCore::State::is_bound(const Live& r) const {
  const Pipeline& p = pipelines[r.stream];
  return p.n > 0 && p.steps[0].ticket.step <= r.last_step;
}

std::uint32_t SchedulerCore::State::stream_for(const Live& r, std::uint32_t known) const {
  if (!config.prefill_stream) return kComputeStream;
  if (is_bound(r) && config.fault != SchedulerFault::join_early) return r.stream;
  return known > 1 ? kPrefillStream : kComputeStream;
}

RowChoice SchedulerCore::State::choose(const Live& r) {
  if (r.phase != Live::Phase::running) return RowChoice::not_open;
  if (r.sampling.incarnation != 0) return RowChoice::at_sampler;
  if (r.kv_blocked) return RowChoice::kv_blocked;
  if (r.n_rows == kMaxDepth) return RowChoice::rows_full;
  const std::uint32_t ahead = r.ahead();
  if (r.output.size() + ahead >= r.max_new) return RowChoice::last_by_count;
  if (r.launched < r.known()) return RowChoice::host;
  if (depth < 2 || !model.supports_device_token_feed) return RowChoice::no_feed;
  const InFlightRow& newest = r.rows[r.n_rows - 1];
  if (newest.chosen_by == RowReadback::logits) return RowChoice::needs_host;
  if (r.text.may_complete()) return RowChoice::stop_may_complete;
  if (stream_for(r, 1) != kComputeStream) return RowChoice::other_stream;
  return RowChoice::feed;
}

}  // namespace troupe::actors
