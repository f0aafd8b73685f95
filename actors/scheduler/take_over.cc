// A request that had output on another replica. What its text, its stop conditions and its thinking block have come to is a
// function of that output; the sampler is given all of it with the first row that it chooses (SampleRow::fresh).
#include <algorithm>

#include "actors/scheduler/state.h"

namespace troupe::actors {

std::optional<FinishReason> SchedulerCore::State::take_over(Live& r, const std::vector<Token>& output) {
  ++stats.taken_over;
  const Request& q = *r.request;
  const auto any = [](const std::vector<Token>& ids, Token id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); };
  std::string told;  // the client has it
  for (const Token id : output) {
    r.output.push_back(id);
    r.newest = id;
    if (q.think && id == q.think->close) r.closed_thinking = true;
    const bool past_min = r.output.size() > r.min_tokens || r.min_tokens == 0;
    const bool matched = model.tokens && r.text.push(model.tokens->text(id), past_min && r.stops_at_strings ? q.stop.stop : no_stops, told);
    const bool ends = (!r.ignore_eos && any(model.eos_ids, id)) || any(q.stop.stop_token_ids, id);
    if (matched || (ends && past_min)) return FinishReason::stop;
    told.clear();
  }
  r.preempted = true;
  if (r.output.size() >= r.max_new) return FinishReason::length;
  return std::nullopt;
}

}  // namespace troupe::actors
