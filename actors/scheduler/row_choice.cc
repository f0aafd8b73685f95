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

// Whether the host must choose output `output_index`: the device's masked argmax knows two barred ids and no sampling.
bool SchedulerCore::State::needs_host(const Live& r, std::uint32_t output_index) {
  return r.always_host || (r.bars(output_index) && barred(r, output_index).size() > 2);
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
  if (newest.host_chosen) return RowChoice::needs_host;
  if (r.text.may_complete()) return RowChoice::stop_may_complete;
  return RowChoice::feed;
}

}  // namespace troupe::actors
