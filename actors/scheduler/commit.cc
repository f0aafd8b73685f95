// Committing results: what a settled row means for its request (R2, R5, R7).
#include <algorithm>
#include <utility>

#include "actors/scheduler/state.h"

namespace troupe::actors {

void SchedulerCore::State::settle_row(const StepRow& row, const StepResult& result, std::uint32_t i, std::uint32_t logits_row,
                                      std::uint32_t logprobs_row) {
  Live* r = find(row);
  if (r == nullptr) {
    ++stats.overruns;
    return;
  }
  if (r->epoch != row.epoch || r->n_rows == 0 || r->rows[0].ticket != result.ticket) {
    ++stats.stale_results;
    if (config.fault == SchedulerFault::forget_epoch && result.ok() && row.readback == RowReadback::argmax &&
        r->output.size() + 1 < r->max_new)
      commit_token(*r, result.rows[i].id, 0, nullptr, 0);
    return;
  }
  if (!result.ok()) return row_failed(*r, result.error.code, result.error.what);
  const Readback& rb = result.rows[i];
  const InFlightRow f = r->rows[0];
  if (f.produces && rb.status != CellStatus::ok) {
    const ErrorCode code = rb.status == CellStatus::no_token   ? ErrorCode::no_token
                           : rb.status == CellStatus::poisoned ? ErrorCode::poisoned
                                                               : ErrorCode::stale_feed;
    return row_failed(*r, code, "the device has no token for position " + std::to_string(f.position) + ": " + name(rb.status));
  }
  // R2: committed only if what the device read is what the host committed, at the position that comes next.
  if (f.position != r->settled || (f.fed && rb.input != r->token(f.position)))
    return row_failed(*r, ErrorCode::stale_feed,
                      "position " + std::to_string(f.position) + " was computed from another input than the committed one");
  std::copy(r->rows.begin() + 1, r->rows.begin() + r->n_rows, r->rows.begin());
  --r->n_rows;
  r->settled += f.n_tokens;
  r->failures = 0;
  effects.push_back(Commit{r->seq, r->epoch, r->settled});
  if (model.has_ssm_layers) keep_state(*r);
  if (!f.produces) return;
  if (f.chosen_by == RowReadback::logits) return ask_sampler(*r, f, result, logits_row);
  if (row.logprobs) {
    const RowLogprobs& logprobs = result.logprobs[logprobs_row];
    return commit_token(*r, rb.id, logprobs.chosen, result.best.data() + logprobs.best_begin, logprobs.n_best);
  }
  commit_token(*r, rb.id, std::numeric_limits<float>::quiet_NaN(), nullptr, 0);
}

// Where other requests can go on from the recurrent state: where the router asked for it, and behind full blocks of the output.
void SchedulerCore::State::keep_state(const Live& r) {
  if (r.settled % model.block_size != 0) return;
  if (r.settled == r.cut_first || r.settled == r.cut_second)
    effects.push_back(SsmSnapshotSave{r.seq});
  else if (r.settled > r.opened_known)
    effects.push_back(SsmCheckpoint{r.seq});
}

void SchedulerCore::State::ask_sampler(Live& r, const InFlightRow& row, const StepResult& result, std::uint32_t logits_row) {
  if (!sample) {
    sample.emplace(sample_batches.draft());
    (*sample)->ticket = result.ticket;
    (*sample)->logits = result.logits;
    samples.push_back({result.ticket, settling_on});
  }
  SampleBatch& b = **sample;
  SampleRow s;
  s.request = r.id;
  s.params = r.request;
  s.seed = r.seed;
  s.logits_row = logits_row;
  s.output_index = row.output_index;
  s.fresh = r.sampler_fresh;
  s.new_begin = static_cast<std::uint32_t>(b.tokens.size());
  b.tokens.insert(b.tokens.end(), r.output.begin() + (s.fresh ? 0 : r.sampler_seen), r.output.end());
  s.new_size = static_cast<std::uint32_t>(b.tokens.size()) - s.new_begin;
  s.bar_begin = static_cast<std::uint32_t>(b.tokens.size());
  const std::vector<Token>& ids = barred(r, row.output_index);
  b.tokens.insert(b.tokens.end(), ids.begin(), ids.end());
  s.bar_size = static_cast<std::uint32_t>(ids.size());
  b.rows.push_back(s);
  r.sampler_seen = static_cast<std::uint32_t>(r.output.size());
  r.sampler_fresh = false;
  r.sampler_knows = true;
  r.sampling = result.ticket;
  ++stats.host_chosen;
}

void SchedulerCore::State::make_text(Live& r) {
  if (r.text_due == 0) return;
  TokenEvent& e = staged.events[std::exchange(r.text_due, 0) - 1];
  e.text_begin = static_cast<std::uint32_t>(staged.text.size());
  (void)r.text.push(model.tokens->text(e.id), no_stops, staged.text);
  e.text_size = static_cast<std::uint32_t>(staged.text.size()) - e.text_begin;
}

void SchedulerCore::State::commit_token(Live& r, Token id, float logprob, const TokenLogprob* best, std::uint32_t n_best) {
  make_text(r);
  TokenBatch& b = staged;
  TokenEvent& e = b.events.emplace_back();
  e.request = r.id;
  e.attempt = r.attempt;
  e.index = static_cast<std::uint32_t>(r.output.size());
  e.id = id;
  e.logprob = logprob;
  e.best_begin = static_cast<std::uint32_t>(b.best.size());
  e.best_size = n_best;
  b.best.insert(b.best.end(), best, best + n_best);
  r.output.push_back(id);
  r.newest = id;
  ++stats.tokens;
  bool ends = !r.ignore_eos && std::find(model.eos_ids.begin(), model.eos_ids.end(), id) != model.eos_ids.end();
  if (r.stops_at_ids) {
    const Request& q = *r.request;
    if (q.think && id == q.think->close) r.closed_thinking = true;
    ends = ends || std::find(q.stop.stop_token_ids.begin(), q.stop.stop_token_ids.end(), id) != q.stop.stop_token_ids.end();
  }

  e.text_begin = static_cast<std::uint32_t>(b.text.size());
  const bool past_min = r.output.size() > r.min_tokens || r.min_tokens == 0;
  bool matched = false;
  if (model.tokens && past_min && r.stops_at_strings) {
    matched = r.text.push(model.tokens->text(id), r.request->stop.stop, b.text);
    e.text_size = static_cast<std::uint32_t>(b.text.size()) - e.text_begin;
  } else if (model.tokens) {
    r.text_due = static_cast<std::uint32_t>(b.events.size());
    without_text.push_back(static_cast<std::uint32_t>(&r - live.data()));
  }
  if (config.fault == SchedulerFault::deliver_twice && stats.tokens % 32 == 31) b.events.push_back(TokenEvent(e));

  bool stop = r.stop_pending || matched || (ends && past_min);
  if (stop && !r.stop_pending && config.fault == SchedulerFault::keep_overrun && r.ahead() > 0) {
    r.stop_pending = true;
    stop = false;
  }
  if (stop) return finish(r, FinishReason::stop);
  if (r.output.size() >= r.max_new) return finish(r, FinishReason::length);
  if (r.n_rows == 0) return;

  // The rows in flight were launched before this token was known: do they still bar what they should (R2)?
  for (std::uint32_t i = 0; i < r.n_rows; ++i) {
    const InFlightRow& f = r.rows[i];
    if (!f.produces || config.fault == SchedulerFault::ignore_mask_change) continue;
    if (f.chosen_by != chooser(r, f.output_index)) return redo(r);
    if (f.chosen_by == RowReadback::argmax ? f.mask != mask_for(r, f.output_index) : f.closed_thinking != r.closed_thinking) return redo(r);
  }
  // Only a row that begins a block can have booked one.
  const InFlightRow& next = r.rows[0];
  if (next.fed && next.position % model.block_size == 0) effects.push_back(Advance{r.seq, next.ticket, next.row});
}

void SchedulerCore::State::redo(Live& r) {
  stats.redone_rows += r.n_rows;
  ++r.epoch;
  r.launched = r.settled;
  r.n_rows = 0;
  r.history_sent = r.opened_len == 0 || !r.penalizes;  // the step that brought it may have failed
  effects.push_back(Rollback{r.seq, r.epoch});
}

// R7: once more from the host's tokens, then an error of this request alone.
void SchedulerCore::State::row_failed(Live& r, ErrorCode code, const std::string& what) {
  ++stats.failed_rows;
  if (++r.failures > 1) return finish(r, FinishReason::error, Error{code, what});
  ++stats.retries;
  redo(r);
}

void SchedulerCore::State::finish(Live& r, FinishReason reason, Error error) {
  make_text(r);
  const auto index = static_cast<std::uint32_t>(&r - live.data());
  TokenBatch& b = staged;
  Finish f;
  f.request = r.id;
  f.reason = reason;
  f.usage = {static_cast<std::uint32_t>(r.request->prompt.size()), static_cast<std::uint32_t>(r.output.size()), r.cached_len};
  f.seed = r.seed;
  f.text_begin = static_cast<std::uint32_t>(b.text.size());
  r.text.flush(b.text);
  f.text_size = static_cast<std::uint32_t>(b.text.size()) - f.text_begin;
  f.error = std::move(error);
  f.attempt = r.attempt;
  f.other_arithmetic = r.other_arithmetic;
  if (config.fault != SchedulerFault::drop_terminal || r.id.generation % 8 != 5) b.finishes.push_back(std::move(f));
  ended.push_back({r.id, r.attempt});
  if (r.sampler_knows) sampler_closed.push_back(r.id);
  forget_saved(r);
  if (r.phase == Live::Phase::waiting) {
    waiting.erase(std::find(waiting.begin(), waiting.end(), index));
  } else {
    running.erase(std::find(running.begin(), running.end(), index));
    if (r.phase == Live::Phase::running) effects.push_back(ReleaseSeq{r.seq});
  }
  by_generation.erase(r.id.generation);
  r.phase = Live::Phase::unused;
  r.id = {};
  r.seq = {};
  r.request = {};
  free_live.push_back(index);
}

// The device is gone, or a bug of ours made the books disagree: everything ends, with the reason, or goes elsewhere.
void SchedulerCore::State::halt(const DeviceError& error) {
  if (halted.code != ErrorCode::none) return;
  halted = Error{error.code == ErrorCode::device_lost || error.code == ErrorCode::closed ? error.code : ErrorCode::internal, error.what};
  if (config.movable && halted.code != ErrorCode::closed)
    left = true;
  else
    end_all();
}

void SchedulerCore::State::end_all() {
  for (Live& r : live)
    if (r.phase != Live::Phase::unused) finish(r, FinishReason::error, halted);
}

}  // namespace troupe::actors
