// Planning: who is admitted, what the next step holds, and what happens when it does not fit.
#include <algorithm>

#include "actors/scheduler/state.h"

namespace troupe::actors {

std::uint32_t blocks_for(std::uint32_t positions, std::uint32_t block_size) { return (positions + block_size - 1) / block_size; }

// Opens waiting requests while there is a place in the batch and, by the router's last word, blocks for their known
// tokens beside what those already admitted still need. With nothing running the first one is opened whatever is free.
void SchedulerCore::State::admit(SchedulerOutbox& out) {
  if (waiting.empty() || restore_waits) return;
  std::uint32_t promised = 0, opening = 0;
  for (const std::uint32_t i : running) {
    const Live& r = live[i];
    const std::uint32_t want = blocks_until(r.settled, r.known() + 1);
    const std::uint32_t have = blocks_for(r.launched, model.block_size) - model.blocks_behind(r.settled);
    promised += want > have ? want - have : 0;
    opening += r.phase == Live::Phase::opening ? 1 : 0;
  }
  while (running.size() < max_batch && opening < facts.free_slots && (!model.has_ssm_layers || opening < facts.ssm_sequences)) {
    const auto next = std::find_if(waiting.begin(), waiting.end(), [&](std::uint32_t i) { return !is_held(live[i]); });
    if (next == waiting.end()) break;
    Live& r = live[*next];
    if (r.saving || (r.saved.incarnation != 0 && saves + restores >= config.spill_places)) break;
    const std::uint32_t need = blocks_until(r.saved.incarnation != 0 ? r.saved_len : 0, r.known() + 1);
    if (!running.empty() && need + promised > facts.free_blocks + facts.cached_blocks) break;
    promised += need;
    ++opening;
    r.phase = Live::Phase::opening;
    running.push_back(*next);
    waiting.erase(next);
    restores += r.saved.incarnation != 0 ? 1 : 0;
    out.push(Open{{}, r.id, r.known(), r.adapter, r.request, r.output, r.saved, r.saved_len});
  }
}

void SchedulerCore::State::add_row(StepPlan& plan, PipelineStep& step, std::uint32_t index, RowChoice choice, std::uint32_t n_tokens,
                                   RowReadback chosen_by) {
  Live& r = live[index];
  InFlightRow& f = r.rows[r.n_rows];
  f.ticket = plan.ticket;
  f.row = static_cast<std::uint32_t>(plan.rows.size());
  f.position = r.launched;
  f.n_tokens = n_tokens;
  f.output_index = static_cast<std::uint32_t>(r.output.size()) + r.ahead();
  f.fed = choice == RowChoice::feed;
  f.produces = f.fed || r.launched + n_tokens == r.known();
  f.chosen_by = f.produces ? chosen_by : RowReadback::none;
  f.closed_thinking = r.closed_thinking;
  f.brought_history = false;
  f.mask = f.chosen_by == RowReadback::argmax ? mask_for(r, f.output_index) : RowMask{};
  Row& row = plan.rows.emplace_back();
  row.seq = r.seq;
  row.epoch = r.epoch;
  row.position = r.launched;
  row.n_tokens = n_tokens;
  row.mask = f.mask;
  row.adapter = r.adapter;
  row.readback = f.chosen_by;
  if (f.fed) {
    const InFlightRow& from = r.rows[r.n_rows - 1];
    row.source = FeedSource::feed(from.ticket, from.row);
  } else {
    row.source = FeedSource::host(static_cast<std::uint32_t>(plan.tokens.size()));
    for (std::uint32_t k = 0; k < n_tokens; ++k) plan.tokens.push_back(r.token(r.launched + k));
  }
  if (f.chosen_by == RowReadback::sample) add_sample(plan, r, f);
  StepRow& launched = step.rows.emplace_back();
  launched.index = index;
  launched.seq = r.seq;
  launched.epoch = r.epoch;
  launched.n_tokens = n_tokens;
  launched.fed = f.fed;
  launched.readback = row.readback;
  launched.logprobs = f.chosen_by == RowReadback::sample && r.request->sampling.logprobs.has_value();
  r.launched += n_tokens;
  ++r.n_rows;
  r.stream = plan.stream;
  r.last_step = plan.ticket.step;
}

void SchedulerCore::State::add_sample(StepPlan& plan, Live& r, InFlightRow& row) {
  const SamplingParams& p = r.request->sampling;
  ++stats.device_sampled;
  RowSample& s = plan.samples.emplace_back();
  s.row = row.row;
  s.output_index = row.output_index;
  s.seed = r.seed;
  s.prompt_length = r.prompt_len;
  s.temperature = p.temperature;
  s.top_k = p.top_k;
  s.top_p = p.top_p;
  s.min_p = p.min_p;
  s.repetition_penalty = p.repetition_penalty;
  s.presence_penalty = p.presence_penalty;
  s.frequency_penalty = p.frequency_penalty;
  s.bias_begin = static_cast<std::uint32_t>(plan.biases.size());
  s.n_biases = static_cast<std::uint32_t>(p.logit_bias.size());
  plan.biases.insert(plan.biases.end(), p.logit_bias.begin(), p.logit_bias.end());
  s.bar_begin = static_cast<std::uint32_t>(plan.tokens.size());
  if (r.bars(row.output_index)) {
    const std::vector<Token>& ids = barred(r, row.output_index);
    s.n_bars = static_cast<std::uint32_t>(ids.size());
    plan.tokens.insert(plan.tokens.end(), ids.begin(), ids.end());
  }
  s.history_begin = static_cast<std::uint32_t>(plan.tokens.size());
  if (!r.history_sent) {
    r.history_sent = row.brought_history = true;
    s.n_history = r.opened_len;
    for (std::uint32_t position = 0; position < r.opened_len; ++position) plan.tokens.push_back(r.token(position));
  }
  if (p.logprobs) {
    s.n_best = *p.logprobs;
    s.logprobs_row = 0;
  }
}

// The streams take turns, so that neither waits for ever behind the other.
bool SchedulerCore::State::plan(SchedulerOutbox& out) {
  if (!config.prefill_stream) return plan(kComputeStream, out);
  const std::uint32_t first = launched_on == kComputeStream ? kPrefillStream : kComputeStream;
  return plan(first, out) || plan(1 - first, out);
}

bool SchedulerCore::State::may_plan(std::uint32_t stream) {
  const Pipeline& pipeline = pipelines[stream];
  if (unanswered || halted.code != ErrorCode::none || running.empty() || pipeline.n >= depth) return false;
  const auto held = std::count_if(samples.begin(), samples.end(), [&](const Sampling& s) { return s.stream == stream; });
  if (pipeline.n + static_cast<std::size_t>(held) >= depth + 1) return false;  // every ring slot is in flight or being read (R4)
  // The device is busy, and rows at the sampler can still join.
  if (stream == kComputeStream && !samples.empty() && pipeline.n > 0) return false;
  if (pipeline.ring_blocked) return false;
  // With two steps queued, one of host rows alone gains nothing by queueing behind them: later it takes along the rows
  // whose tokens are still to be seen, instead of leaving them a step of their own each.
  return pipeline.n < 2 || (stream == kComputeStream && std::any_of(running.begin(), running.end(),
                                                                    [&](std::uint32_t i) { return choose(live[i]) == RowChoice::feed; }));
}

// Decode rows first, each request's next token; then chunks of prompts, in the order of admission, in what is left of
// the token budget. Where the batch is cut, the next plan starts with who was left out, and if nothing was left for the
// first chunk it has half of the next plan: neither waits for ever behind the other, whatever arrives. Where prefill has a stream of
// its own, a plan has the one kind or the other.
bool SchedulerCore::State::plan(std::uint32_t stream, SchedulerOutbox& out) {
  if (!may_plan(stream)) return false;
  Pipeline& pipeline = pipelines[stream];
  if (turn >= running.size()) turn = 0;

  Draft<StepPlan> draft = plans.draft();
  StepPlan& plan = *draft;
  plan.ticket = {config.router_incarnation, next_step};
  plan.stream = stream;
  if (pipeline.n == pipeline.steps.size()) pipeline.steps.emplace_back();
  PipelineStep& step = pipeline.steps[pipeline.n];
  step.ticket = plan.ticket;
  step.rows.clear();

  std::uint32_t budget = step_tokens, logits = 0, words = 0;
  std::optional<std::uint32_t> cut;
  std::optional<bool> chunk_served;  // the first chunk that was due
  bool decode = false, fed = false;
  const bool split = config.prefill_stream;
  const bool first = split ? stream == kPrefillStream : chunks_first;
  bool others = true;  // rows of the other kind than the first round's
  for (const bool chunks : {first, !first}) {
    if (chunks != first && (split || !others)) break;
    others = false;
    for (std::uint32_t k = 0; k < running.size(); ++k) {
      const std::uint32_t at = chunks ? k : static_cast<std::uint32_t>((turn + k) % running.size());
      Live& r = live[running[at]];
      const RowChoice choice = choose(r);
      if (choice != RowChoice::host && choice != RowChoice::feed) continue;
      const std::uint32_t known = choice == RowChoice::feed ? 1 : r.known() - r.launched;
      const bool chunk = split ? stream_for(r, known) == kPrefillStream : known > 1;
      others = others || chunk != chunks;
      if (chunk != chunks || (r.n_rows > 0 && r.rows[r.n_rows - 1].ticket == plan.ticket)) continue;
      const std::uint32_t n = std::min({known, chunk_limit(r), chunks && chunks_first ? (chunk_served ? 0 : (budget + 1) / 2) : budget});
      const bool produces = choice == RowChoice::feed || n == known;
      const std::uint32_t output_index = static_cast<std::uint32_t>(r.output.size()) + r.ahead();
      const RowReadback by = produces ? chooser(r, output_index) : RowReadback::none;
      const std::uint32_t brings = by == RowReadback::sample ? sample_words(r, output_index) : 0;
      const bool fits = n > 0 && plan.rows.size() < model.max_rows && !(by == RowReadback::logits && logits >= model.max_logits_rows) &&
                        (brings == 0 || words + brings <= model.max_sample_words);
      if (chunks && !chunk_served) chunk_served = fits;
      if (!fits) {
        if (!chunks && !cut) cut = at;
        continue;
      }
      decode = decode || r.launched >= r.prompt_len;
      fed = fed || choice == RowChoice::feed;
      if (r.launched < r.prompt_len) stats.prefill_tokens += n;
      logits += by == RowReadback::logits ? 1 : 0;
      words += brings;
      budget -= n;
      add_row(plan, step, running[at], choice, n, by);
    }
  }
  if (!split) chunks_first = !chunk_served.value_or(true);
  if (stream == kComputeStream) turn = cut.value_or(0);
  if (plan.rows.empty()) return false;

  plan.effects.swap(effects);
  ++stats.steps;
  stats.rows += plan.rows.size();
  if (decode) {
    ++stats.decode_steps;
    if (fed && pipeline.n > 0) ++stats.steps_ahead;
  }
  for (const StepRow& row : step.rows) stats.fed_rows += row.fed ? 1 : 0;
  if (stream == kPrefillStream) ++stats.prefill_steps;
  ++next_step;
  ++pipeline.n;
  unanswered = true;
  launched_on = stream;
  out.push(Launch{{}, std::move(draft).freeze(), true});
  return true;
}

// The newest launch was refused: nothing of it happened but its effects. Its rows are taken back as they were.
void SchedulerCore::State::refused(const DeviceError& error) {
  Pipeline& pipeline = pipelines[launched_on];
  PipelineStep& step = pipeline.steps[--pipeline.n];
  for (const StepRow& row : step.rows) {
    Live* r = find(row);
    if (r == nullptr || r->epoch != row.epoch) continue;
    --r->n_rows;
    r->launched -= row.n_tokens;
    if (r->rows[r->n_rows].brought_history) r->history_sent = false;
  }
  switch (error.code) {
    case ErrorCode::kv_exhausted:
      no_room(step, error);
      break;
    case ErrorCode::ring_exhausted:  // a settle gives a slot back, or logits that were read
      ++stats.ring_waits;
      pipeline.ring_blocked = pipeline.n > 0 || !samples.empty();
      break;
    default:
      halt(error);
      break;
  }
}

// R10: rows that need a block sit out until something settles; a row that would only run ahead never does more than
// that. For a row that must have it, while enough is fenced nothing more is done; else the newest request gives up its
// blocks and is computed again later. Newest first, so that the oldest always goes on.
void SchedulerCore::State::no_room(const PipelineStep& step, const DeviceError& error) {
  Live* must = nullptr;
  for (std::uint32_t i = error.row; i < step.rows.size(); ++i) {
    const StepRow& row = step.rows[i];
    Live* r = find(row);
    if (r == nullptr || r->epoch != row.epoch) continue;
    r->kv_blocked = true;
    if (!row.fed && (must == nullptr || r->admitted < must->admitted)) must = r;
  }
  ++stats.kv_waits;
  if (must == nullptr) return;
  const std::size_t releases = static_cast<std::size_t>(std::count_if(effects.begin(), effects.end(), [](const Effect& e) {
    return std::holds_alternative<ReleaseSeq>(e) || std::holds_alternative<SaveSequenceState>(e);
  }));
  if (facts.fenced_blocks >= error.missing_blocks || releases > 0) {
    ++stats.fence_waits;
    return;
  }
  Live* victim = choose_victim();
  // If it is the one that must have it, it waits as long as another one moves; one that ended while it was brought back
  // still has blocks to give.
  const bool moving = in_flight() > 0 || saves + restores > 0 ||
                      std::any_of(running.begin(), running.end(), [&](std::uint32_t i) { return !live[i].kv_blocked; });
  if (victim != must || (!moving && running.size() > 1)) {
    --stats.kv_waits;
    preempt(*victim);
  } else if (!moving) {
    finish(*must, FinishReason::error, Error{ErrorCode::kv_exhausted, error.what + ": the request does not fit the KV pool"});
  }
}

// The newest, so that the oldest always goes on; one that was resumed lately only if there is no other.
Live* SchedulerCore::State::choose_victim() {
  Live* oldest = nullptr;
  Live* victim = nullptr;
  const auto immune = [](const Live& r) { return r.output.size() < r.immune_until; };
  for (const std::uint32_t i : running) {
    Live& r = live[i];
    if (r.phase == Live::Phase::running && (oldest == nullptr || r.admitted < oldest->admitted)) oldest = &r;
  }
  for (const std::uint32_t i : running) {
    Live& r = live[i];
    if (r.phase != Live::Phase::running || &r == oldest) continue;
    if (victim == nullptr || (immune(r) != immune(*victim) ? immune(*victim) : r.admitted > victim->admitted)) victim = &r;
  }
  return victim != nullptr ? victim : oldest;
}

void SchedulerCore::State::preempt(Live& r) {
  ++stats.preemptions;
  r.preempted = true;
  const auto index = static_cast<std::uint32_t>(&r - live.data());
  if (may_spill(r))
    spill(r);
  else
    effects.push_back(ReleaseSeq{r.seq});
  running.erase(std::find(running.begin(), running.end(), index));
  waiting.push_front(index);
  r.phase = Live::Phase::waiting;
  r.seq = {};
  r.epoch = r.launched = r.settled = r.n_rows = 0;
  r.last_step = 0;
  r.sampling = {};
  r.kv_blocked = false;
}

}  // namespace troupe::actors
