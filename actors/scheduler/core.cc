#include "actors/scheduler/core.h"

#include <algorithm>

#include "actors/scheduler/state.h"

namespace troupe::actors {

SchedulerCore::State::State(const SchedulerConfig& c, const ModelInfo& m)
    : config(c),
      model(m),
      depth(m.supports_device_token_feed ? std::clamp(std::min(c.depth, m.max_depth), 1u, kMaxDepth) : 1u),
      max_batch(std::max(1u, std::min({c.max_batch, m.max_rows, m.n_slots}))),
      step_tokens(std::max(1u, std::min(c.step_tokens, m.max_step_tokens))) {
  for (Pipeline& p : pipelines) p.steps.resize(depth);
  facts.total_blocks = facts.free_blocks = m.kv_blocks;
  facts.total_slots = facts.free_slots = m.n_slots;
  facts.has_ssm = m.has_ssm_layers;
  facts.ssm_total = m.ssm_states;
  facts.ssm_sequences = m.ssm_states / (depth + 1);
  running.reserve(max_batch);
}

Live* SchedulerCore::State::find(const RequestId& id) {
  const auto it = by_generation.find(id.generation);
  return it == by_generation.end() ? nullptr : &live[it->second];
}

Live* SchedulerCore::State::find(const StepRow& row) {
  Live& r = live[row.index];
  return r.seq == row.seq ? &r : nullptr;
}

void SchedulerCore::State::advance(TimeNs, SchedulerOutbox& out) {
  if (left) {
    if (!ended.empty()) out.push(Ended{{}, std::exchange(ended, {}), config.replica});
    if (!std::exchange(told, true)) out.push(ReplicaLost{{}, config.replica, halted});
    return;
  }
  admit(out);
  const bool launched = plan(out);
  // They wait for a launch no longer than the compute stream has a step; one of prefill may take long.
  if (!launched && !unanswered && pipelines[kComputeStream].n == 0) {
    for (const Effect& effect : effects) out.push(Apply{{}, effect});
    applying += static_cast<std::uint32_t>(effects.size());
    effects.clear();
  }
  if (sample || sampler_closed.size() >= 64) {
    if (!sample) sample.emplace(sample_batches.draft());
    (*sample)->closed.assign(sampler_closed.begin(), sampler_closed.end());
    sampler_closed.clear();
    out.push(Sample{{}, std::move(*sample).freeze()});
    sample.reset();
  }
  for (const SeqId seq : drops) out.push(DropState{{}, seq});
  drops.clear();
  if (!ended.empty()) out.push(Ended{{}, std::exchange(ended, {}), config.replica});
  // Over-runs and releases included: once it is answered, the pools are whole.
  if (draining && by_generation.empty() && in_flight() == 0 && applying == 0 && (saves + restores == 0 || halted.code != ErrorCode::none)) {
    draining = false;
    out.push(Drained{{}, config.replica});
  }
}

void SchedulerCore::deliver(SchedulerOutbox& out) {
  TokenBatch& staged = s_->staged;
  const bool settled = std::exchange(s_->settled_now, false);
  if (staged.events.empty() && staged.finishes.empty()) return;
  if (settled && s_->unanswered && s_->halted.code == ErrorCode::none && !std::exchange(s_->due, true)) return;
  s_->due = false;
  for (const std::uint32_t i : s_->without_text) s_->make_text(s_->live[i]);
  s_->without_text.clear();
  Draft<TokenBatch> batch = s_->token_batches.draft();
  batch->events.assign(staged.events.begin(), staged.events.end());
  batch->finishes.assign(std::make_move_iterator(staged.finishes.begin()), std::make_move_iterator(staged.finishes.end()));
  batch->text.assign(staged.text);
  batch->best.assign(staged.best.begin(), staged.best.end());
  staged.clear();
  out.push(Deliver{{}, std::move(batch).freeze()});
}

SchedulerCore::SchedulerCore(const SchedulerConfig& config, const ModelInfo& model) : s_(std::make_unique<State>(config, model)) {}
SchedulerCore::~SchedulerCore() = default;

const SchedulerStats& SchedulerCore::stats() const { return s_->stats; }
std::uint32_t SchedulerCore::waiting() const { return static_cast<std::uint32_t>(s_->waiting.size()); }
std::uint32_t SchedulerCore::running() const { return static_cast<std::uint32_t>(s_->running.size()); }
std::uint32_t SchedulerCore::in_flight() const { return s_->in_flight(); }
TimeNs SchedulerCore::last_settled() const { return s_->last_settled; }

void SchedulerCore::on(const Admit& m, TimeNs now, SchedulerOutbox& out) {
  State& s = *s_;
  if (s.left) return;
  if (s.free_live.empty()) {
    s.free_live.push_back(static_cast<std::uint32_t>(s.live.size()));
    s.live.emplace_back();
  }
  const std::uint32_t index = s.free_live.back();
  s.free_live.pop_back();
  Live& r = s.live[index];
  std::vector<Token> output = std::move(r.output);
  output.clear();
  r = {};
  r.output = std::move(output);
  r.phase = Live::Phase::waiting;
  r.id = m.id;
  r.request = m.request;
  r.seed = m.seed;
  r.admitted = ++s.admissions;
  r.prompt_len = static_cast<std::uint32_t>(m.request->prompt.size());
  r.min_tokens = m.request->stop.min_tokens;
  r.samples = m.request->sampling.needs_logits();
  r.penalizes = m.request->sampling.penalizes();
  r.stops_at_ids = m.request->think.has_value() || !m.request->stop.stop_token_ids.empty();
  r.stops_at_strings = !m.request->stop.stop.empty();
  r.ignore_eos = m.request->stop.ignore_eos;
  r.max_new = std::min(m.request->stop.max_tokens, s.model.context_length - std::min(r.prompt_len, s.model.context_length));
  r.output.reserve(r.max_new);
  r.adapter = m.adapter;
  r.attempt = m.attempt;
  r.other_arithmetic = m.other_arithmetic;
  const auto over = m.output.empty() ? std::nullopt : s.take_over(r, m.output);
  if (m.request->deadline) {
    r.deadline = now + *m.request->deadline - m.waited;
    s.arm(r.deadline, out);
  }
  s.by_generation.emplace(m.id.generation, index);
  s.waiting.push_back(index);
  if (s.halted.code != ErrorCode::none)
    s.finish(r, FinishReason::error, s.halted);
  else if (m.error.code != ErrorCode::none)
    s.finish(r, FinishReason::error, m.error);
  else if (m.parked)
    return;  // its cancel, or its deadline, follows
  else if (over)
    s.finish(r, *over);
  else if (r.max_new == 0)
    s.finish(r, FinishReason::length);
  s.advance(now, out);
}

void SchedulerCore::on(const CancelRequest& m, TimeNs now, SchedulerOutbox& out) {
  State& s = *s_;
  if (s.left) return;
  CancelReply reply{{}, m.id, CancelOutcome::already_finished, 0, s.config.replica};
  if (Live* r = s.find(m.id)) {
    reply.tokens = static_cast<std::uint32_t>(r->output.size());
    reply.outcome =
        r->phase == Live::Phase::waiting && r->output.empty() ? CancelOutcome::cancelled_waiting : CancelOutcome::cancelled_running;
    s.finish(*r, FinishReason::cancelled);
  }
  s.advance(now, out);
  out.push(reply);  // after Ended: once it is acknowledged, the client id may come again
}

void SchedulerCore::on(const Opened& m, TimeNs now, SchedulerOutbox& out) {
  State& s = *s_;
  if (s.left) return;
  s.facts = m.facts;
  Live* r = s.find(m.request);
  const bool ours = r != nullptr && r->phase == Live::Phase::opening;
  const bool restore = m.restore.incarnation != 0;
  if (restore && m.error.code == ErrorCode::none) s.opened_from_file(ours ? r : nullptr, m);
  if (m.error.code == ErrorCode::none) {
    if (ours) {
      r->phase = Live::Phase::running;
      r->seq = m.seq;
      r->launched = r->settled = r->opened_len = m.cached_len;
      r->cut_first = m.cut_first;
      r->cut_second = m.cut_second;
      r->opened_known = r->known();
      if (m.snapshot != DeviceRow::kNone) s.effects.push_back(SsmSnapshotRestore{m.seq, m.snapshot});
      r->history_sent = m.cached_len == 0 || !r->penalizes;
      if (!r->preempted)
        r->cached_len = m.cached_len;
      else
        r->immune_until = r->output.size() + s.config.resume_immunity, ++s.stats.resumes;
      s.stats.cached_tokens += m.restored ? 0 : m.cached_len;
      if (s.is_held(*r)) s.preempt(*r);
    } else {
      s.effects.push_back(ReleaseSeq{m.seq});  // ended while it was opened
    }
  } else if (m.error.code == ErrorCode::adapter_gone) {
    if (ours) s.finish(*r, FinishReason::error, Error{m.error.code, "the adapter that the request was bound to is gone"});
  } else if (m.error.code != ErrorCode::slot_exhausted &&
             !(restore && (m.error.code == ErrorCode::kv_exhausted || m.error.code == ErrorCode::overloaded))) {
    s.halt(m.error);
  } else if (ours) {  // facts say that no slot is free: it waits for one
    const auto index = static_cast<std::uint32_t>(r - s.live.data());
    s.running.erase(std::find(s.running.begin(), s.running.end(), index));
    s.waiting.push_front(index);
    r->phase = Live::Phase::waiting;
  }
  if (restore) s.unblock();
  if (restore && m.error.code != ErrorCode::none) s.restore_refused(ours && r->phase == Live::Phase::waiting ? r : nullptr, m);
  s.advance(now, out);
}

void SchedulerCore::on(const Accepted& m, TimeNs now, SchedulerOutbox& out) {
  State& s = *s_;
  if (s.left) return;
  s.facts = m.facts;
  const Pipeline& pipeline = s.pipelines[s.launched_on];
  if (!s.unanswered || pipeline.steps[pipeline.n - 1].ticket != m.ticket) return;
  s.unanswered = false;
  if (m.error.code != ErrorCode::none) s.refused(m.error);
  s.advance(now, out);
}

void SchedulerCore::on(const Settled& m, TimeNs now, SchedulerOutbox& out) {
  State& s = *s_;
  if (s.left) return;
  const StepResult& result = *m.result;
  s.facts = m.facts;
  s.last_settled = now;
  ++s.stats.settled;
  s.settled_now = true;
  s.ring_freed();
  const auto of = std::find_if(s.pipelines.begin(), s.pipelines.end(),
                               [&](const Pipeline& p) { return p.n > 0 && p.steps[0].ticket == result.ticket; });
  if (of == s.pipelines.end()) return ++s.stats.stale_results, void();  // none of ours: counted and dropped (R5)
  std::rotate(of->steps.begin(), of->steps.begin() + 1, of->steps.begin() + of->n);
  --of->n;
  s.settling_on = static_cast<std::uint32_t>(of - s.pipelines.begin());
  const PipelineStep& step = of->steps[of->n];
  if (result.error.code == ErrorCode::device_lost) s.halt(result.error);
  if (s.left) return s.advance(now, out);
  std::uint32_t logits_row = 0, logprobs_row = 0;
  for (std::uint32_t i = 0; i < step.rows.size(); ++i) {
    s.settle_row(step.rows[i], result, i, logits_row, logprobs_row);
    if (step.rows[i].readback == RowReadback::logits) ++logits_row;
    if (step.rows[i].logprobs) ++logprobs_row;
  }
  if (result.logits.n_rows > 0 && !s.sample) s.effects.push_back(ReadLogits{result.ticket});  // nobody is left to read them
  s.unblock();
  s.advance(now, out);
}

void SchedulerCore::on(const Sampled& m, TimeNs now, SchedulerOutbox& out) {
  State& s = *s_;
  if (s.left) return;
  const SampledBatch& b = *m.batch;
  const auto pending = std::find_if(s.samples.begin(), s.samples.end(), [&](const Sampling& x) { return x.ticket == b.ticket; });
  if (pending == s.samples.end()) return;  // the answer to closed requests only
  s.samples.erase(pending);
  s.ring_freed();
  s.effects.push_back(ReadLogits{b.ticket});
  for (const SampledRow& row : b.rows) {
    Live* r = s.find(row.request);
    if (r == nullptr || r->sampling != b.ticket) {
      ++s.stats.stale_results;
      continue;
    }
    r->sampling = {};
    if (row.status != CellStatus::ok)
      s.finish(*r, FinishReason::error, Error{ErrorCode::no_token, "the sampler found no token: every logit is NaN or barred"});
    else
      s.commit_token(*r, row.id, row.logprob, b.best.data() + row.best_begin, row.best_size);
  }
  s.advance(now, out);
}

void SchedulerCore::on(const Applied& m, TimeNs now, SchedulerOutbox& out) {
  State& s = *s_;
  if (s.left) return;
  s.facts = m.facts;
  if (s.applying > 0) --s.applying;
  s.ring_freed();
  if (m.error.code != ErrorCode::none) s.halt(m.error);
  s.unblock();
  s.advance(now, out);
}

void SchedulerCore::on(const Tick&, TimeNs now, SchedulerOutbox& out) {
  State& s = *s_;
  if (s.left) return;
  s.timer = 0;
  TimeNs next = 0;
  for (Live& r : s.live) {
    if (r.phase == Live::Phase::unused || r.deadline == 0) continue;
    if (r.deadline <= now)
      s.finish(r, FinishReason::deadline);
    else if (next == 0 || r.deadline < next)
      next = r.deadline;
  }
  if (s.held.slot != 0) {
    if (s.held_until <= now)
      s.held = {};  // the lease has expired: who asked for it is gone, and stalls nobody
    else if (next == 0 || s.held_until < next)
      next = s.held_until;
  }
  if (next != 0) {
    s.timer = next;
    out.push(SetTimer{next});
  }
  s.advance(now, out);
}

void SchedulerCore::on(const Drain&, TimeNs now, SchedulerOutbox& out) {
  if (s_->left) return;
  s_->draining = true;
  s_->advance(now, out);
}

void SchedulerCore::on(const Halt& m, TimeNs now, SchedulerOutbox& out) {
  State& s = *s_;
  if (s.left || s.halted.code == ErrorCode::none) {
    s.left = false;
    s.halted = m.error;
    s.end_all();
  }
  s.advance(now, out);
}

void SchedulerCore::on(const AskReport&, TimeNs now, SchedulerOutbox& out) {
  const State& s = *s_;
  if (s.left) return;
  ReplicaReport report;
  report.replica = s.config.replica;
  report.facts = s.facts;
  report.waiting = waiting();
  report.running = running();
  report.in_flight = s.in_flight();
  report.steps = s.stats.steps;
  report.steps_ahead = s.stats.steps_ahead;
  report.settled = s.stats.settled;
  report.tokens = s.stats.tokens;
  for (const Live& r : s.live)
    if (r.phase != Live::Phase::unused) report.outstanding += r.prompt_len + r.max_new - std::min(r.settled, r.prompt_len + r.max_new);
  report.since_settled = s.last_settled == 0 ? 0 : now - s.last_settled;
  out.push(std::move(report));
}

std::string SchedulerCore::check() const {
  const State& s = *s_;
  if (s.left) return {};  // it was given up where it stood
  for (const Pipeline& p : s.pipelines)
    if (p.n > s.depth) return "R4: more steps in flight than the depth";
  if (s.running.size() > s.max_batch) return "R11: more running requests than the batch holds";
  std::size_t used = 0;
  for (const Live& r : s.live) {
    if (r.phase == Live::Phase::unused) continue;
    ++used;
    std::uint32_t in_rows = 0;
    for (std::uint32_t i = 0; i < r.n_rows; ++i) in_rows += r.rows[i].n_tokens;
    if (r.settled + in_rows != r.launched) return "R2: " + label(r.id) + ": launched length is not settled length plus its rows in flight";
    if (r.n_rows > s.pipelines[r.stream].n) return "R2: " + label(r.id) + " has more rows than there are steps in flight";
    if (r.output.size() + r.ahead() > r.max_new) return "R10: " + label(r.id) + " was fed past its last token";
    if (r.saving && r.phase != Live::Phase::waiting) return "R3: " + label(r.id) + " was opened before its save was answered";
    if (r.settled > r.known()) return "R2: " + label(r.id) + " settled past its known tokens";
  }
  if (s.saves + s.restores > s.config.spill_places) return "R11: more saves and restores at a time than there are places";
  if (s.restore_waits && !s.something_moves() && s.halted.code == ErrorCode::none)
    return "R10: a saved request waits for blocks, and nothing is in flight";
  if (used != s.waiting.size() + s.running.size() || used != s.by_generation.size()) return "R5: a request is in no queue, or in two";
  if (!s.running.empty() && s.in_flight() == 0 && s.samples.empty() && !s.unanswered && !s.applying && s.saves + s.restores == 0 &&
      s.halted.code == ErrorCode::none) {
    const bool moving =
        std::any_of(s.running.begin(), s.running.end(), [&](std::uint32_t i) { return s.live[i].phase == Live::Phase::opening; });
    if (!moving) return "R10: requests run, and nothing is in flight or asked for";
  }
  return {};
}

}  // namespace troupe::actors
