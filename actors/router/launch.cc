// Accepting a plan: the checks, the reservation of blocks (all or nothing), and the step that the device will see.
#include <algorithm>

#include "actors/router/state.h"

namespace troupe::actors {

namespace {

std::uint32_t blocks_for(std::uint32_t positions, std::uint32_t block_size) { return (positions + block_size - 1) / block_size; }

DeviceError bad_row(std::uint32_t row, std::string what) {
  return device_error(DeviceError::Phase::launch, ErrorCode::bad_plan, "row " + std::to_string(row) + ": " + what, row);
}

}  // namespace

const RingSlot* RouterCore::State::cells_of(Ticket ticket, const RingSlot* guess) const {
  if (guess != nullptr && guess->ticket == ticket) return guess;
  for (const RingSlot& slot : ring)
    if (slot.ticket == ticket) return &slot;
  return nullptr;
}

DeviceError RouterCore::State::validate(const StepPlan& plan) {
  using Phase = DeviceError::Phase;
  if (plan.ticket.incarnation != config.incarnation)
    return device_error(Phase::launch, ErrorCode::bad_plan,
                        label(plan.ticket) + " is of another router: this one is " + std::to_string(config.incarnation));
  if (plan.ticket.step <= last_step)
    return device_error(Phase::launch, ErrorCode::bad_plan, label(plan.ticket) + " is not after step " + std::to_string(last_step));
  if (plan.stream >= streams)
    return device_error(Phase::launch, ErrorCode::bad_plan,
                        label(plan.ticket) + " is for stream " + std::to_string(plan.stream) + ", of " + std::to_string(streams));
  if (plan.rows.empty()) return device_error(Phase::launch, ErrorCode::bad_plan, "a plan without rows: send its effects alone");
  if (plan.rows.size() > model.max_rows)
    return device_error(Phase::launch, ErrorCode::bad_plan,
                        std::to_string(plan.rows.size()) + " rows, at most " + std::to_string(model.max_rows));
  planned.clear();
  std::uint32_t tokens = 0, logits = 0, sampled = 0;
  const RingSlot* from = nullptr;
  for (std::uint32_t i = 0; i < plan.rows.size(); ++i) {
    const Row& row = plan.rows[i];
    RouterSequence* s = find(row.seq);
    if (s == nullptr || s->released) return bad_row(i, "sequence " + label(row.seq) + " is not live");
    if (s->slot == RouterSequence::kNoSlot) return bad_row(i, "sequence " + label(row.seq) + " has no slot");
    if (s->stateless)
      return bad_row(i, "sequence " + label(row.seq) + " was opened behind a snapshot and has not been told to begin from it");
    if (s->open_steps > 0 && s->stream != plan.stream && config.fault != RouterFault::trust_join)
      return bad_row(i, "a step in flight on another stream names sequence " + label(row.seq));
    if (row.epoch != s->epoch) return bad_row(i, "epoch " + std::to_string(row.epoch) + ", the sequence is at " + std::to_string(s->epoch));
    if (row.position != s->launched_len)
      return bad_row(i, "position " + std::to_string(row.position) + ", the launched length is " + std::to_string(s->launched_len));
    if (row.n_tokens == 0 || row.n_tokens > model.context_length - row.position)
      return bad_row(i, std::to_string(row.n_tokens) + " tokens at position " + std::to_string(row.position) +
                            " do not fit the context of " + std::to_string(model.context_length));
    if (row.adapter != s->adapter) return bad_row(i, "adapter " + label(row.adapter) + ", the sequence runs under " + label(s->adapter));
    if (s->planned_in == plan.ticket.step) return bad_row(i, "a second row of sequence " + label(row.seq));
    if (row.source.is_feed()) {
      from = cells_of(row.source.feed_ticket(), from);
      if (from == nullptr) return bad_row(i, "is fed from " + label(row.source.feed_ticket()) + ", whose cells are gone");
      if (row.n_tokens != 1) return bad_row(i, "is fed and has " + std::to_string(row.n_tokens) + " tokens");
      if (row.source.feed_row() >= from->rows.size() || from->rows[row.source.feed_row()].seq != row.seq)
        return bad_row(i, "is fed from a row of another sequence");
    } else if (row.source.begin() > plan.tokens.size() || row.n_tokens > plan.tokens.size() - row.source.begin()) {
      return bad_row(i, "its tokens lie past the plan's");
    } else {
      for (std::uint32_t k = 0; k < row.n_tokens; ++k)
        if (plan.tokens[row.source.begin() + k] >= model.vocab_size) return bad_row(i, "an id outside the vocabulary");
    }
    s->planned_in = plan.ticket.step;
    planned.push_back(s);
    tokens += row.n_tokens;
    if (row.readback == RowReadback::logits) ++logits;
    if (row.readback == RowReadback::sample) ++sampled;
  }
  if (tokens > model.max_step_tokens)
    return device_error(Phase::launch, ErrorCode::bad_plan,
                        std::to_string(tokens) + " tokens, at most " + std::to_string(model.max_step_tokens));
  if (logits > model.max_logits_rows)
    return device_error(
        Phase::launch, ErrorCode::bad_plan,
        std::to_string(logits) + " rows read logits back, at most " + std::to_string(model.max_logits_rows) + ": cut the plan");
  return sampled == 0 && plan.samples.empty() ? DeviceError{} : validate_samples(plan, sampled);
}

DeviceError RouterCore::State::validate_samples(const StepPlan& plan, std::uint32_t sampled) const {
  const auto bad = [](std::string what) { return device_error(DeviceError::Phase::launch, ErrorCode::bad_plan, std::move(what)); };
  if (!model.supports_device_sampling) return bad("the plan has rows to sample, and the device does not sample");
  if (plan.samples.size() != sampled)
    return bad(std::to_string(sampled) + " rows are to be sampled, and the plan says how for " + std::to_string(plan.samples.size()));
  const auto inside = [](std::uint32_t begin, std::uint32_t n, std::size_t size) { return begin <= size && n <= size - begin; };
  std::uint64_t words = 0;
  std::uint32_t next = 0;
  for (const RowSample& s : plan.samples) {
    if (s.row < next || s.row >= plan.rows.size() || plan.rows[s.row].readback != RowReadback::sample)
      return bad("how to sample row " + std::to_string(s.row) + " is not at the place of a row that is sampled");
    next = s.row + 1;
    if (!inside(s.bias_begin, s.n_biases, plan.biases.size()) || !inside(s.bar_begin, s.n_bars, plan.tokens.size()) ||
        !inside(s.history_begin, s.n_history, plan.tokens.size()))
      return bad_row(s.row, "its biases, barred ids or history lie past the plan's");
    if (s.n_history > plan.rows[s.row].position) return bad_row(s.row, "its history is longer than what is before it");
    words += 2ull * s.n_biases + s.n_bars + s.n_history;
  }
  if (words > model.max_sample_words)
    return bad("the sampled rows bring " + std::to_string(words) + " words, at most " + std::to_string(model.max_sample_words) +
               ": cut the plan");
  return {};
}

// R4: a free slot of the plan's stream, never one whose cells this plan reads. Of several the one that was used longest ago.
RingSlot* RouterCore::State::pick_slot(const StepPlan& plan) {
  if (in_flight_on[plan.stream] >= depth) return nullptr;
  RingSlot* best = nullptr;
  for (RingSlot& slot : ring) {
    const bool early = config.fault == RouterFault::reuse_ring_early && slot.use == RingSlot::Use::held;
    if (slot.handles.stream != plan.stream || (slot.use != RingSlot::Use::free && !early)) continue;
    const bool read = std::any_of(plan.rows.begin(), plan.rows.end(),
                                  [&](const Row& r) { return r.source.is_feed() && r.source.feed_ticket() == slot.ticket; });
    if (!read && (best == nullptr || slot.ticket < best->ticket)) best = &slot;
  }
  return best;
}

DeviceError RouterCore::State::reserve(const StepPlan& plan, LaunchedStep& step, RingSlot& slot) {
  std::uint32_t need = 0;
  std::optional<std::uint32_t> first;
  for (std::uint32_t i = 0; i < plan.rows.size(); ++i) {
    const Row& row = plan.rows[i];
    const auto have = static_cast<std::uint32_t>(planned[i]->table.size());
    if (row.position + row.n_tokens <= have * model.block_size) continue;
    need += blocks_for(row.position + row.n_tokens, model.block_size) - have;
    if (need > cache.available() && !first) first = i;
  }
  if (first) {
    DeviceError e =
        device_error(DeviceError::Phase::launch, ErrorCode::kv_exhausted,
                     "the plan needs " + std::to_string(need) + " KV blocks, " + std::to_string(cache.available()) + " are free", *first);
    e.missing_blocks = need - cache.available();
    return e;
  }
  slot.rows.clear();
  const RingSlot* cells = nullptr;
  for (std::uint32_t i = 0; i < plan.rows.size(); ++i) {
    const Row& row = plan.rows[i];
    RouterSequence& s = *planned[i];
    OpenRow& open = slot.rows.emplace_back();
    open.record = static_cast<std::uint32_t>(&s - sequences.data());
    open.seq = s.id;
    open.epoch = s.epoch;
    open.position = row.position;
    while (row.position + row.n_tokens > s.table.size() * model.block_size) {
      s.table.push_back(cache.take().value());
      if (row.source.is_feed()) ++open.ahead_blocks;
    }
    // A step brings the table entries of every block that it writes, new or not: whatever became of earlier steps, it
    // never writes into a block of another sequence (R7). After a failed step, a move or a prefix hit, all of them.
    // What went back since its last row is said too, so that the device finds whoever still reads it.
    const std::uint32_t first = row.position / model.block_size, from = s.resend ? 0 : first;
    const std::uint32_t end = row.n_tokens == 1 ? first + 1 : blocks_for(row.position + row.n_tokens, model.block_size);
    open.whole_table = s.resend;
    for (std::uint32_t b = s.told; b < s.behind && b < from; ++b) step.deltas.push_back({s.slot, b, kNoBlock});
    s.told = s.behind;
    s.named_in = plan.ticket.step;
    s.stream = plan.stream;
    for (std::uint32_t b = from; b < end; ++b) step.deltas.push_back({s.slot, b, s.table[b]});
    DeviceRow& d = step.rows.emplace_back();
    d.slot = s.slot;
    d.position = row.position;
    d.n_tokens = row.n_tokens;
    d.source = row.source.kind();
    if (row.source.is_feed()) {
      d.index = row.source.feed_row();
      d.feed_tag = row.source.feed_ticket().tag();
      cells = cells_of(row.source.feed_ticket(), cells);
      d.feed_cells = cells->handles.slot;
      if (config.fault == RouterFault::stale_cell)
        for (const RingSlot& other : ring)
          if (other.ticket.step != 0 && other.ticket != row.source.feed_ticket() && &other != &slot)
            d.feed_cells = other.handles.slot, d.feed_tag = other.ticket.tag();
    } else {
      d.index = row.source.begin();
    }
    d.mask = row.mask;
    d.adapter_slot = row.adapter.slot;
    next_state(s, row.n_tokens, d);
    d.wants_token = row.readback != RowReadback::none;
    d.sampled = row.readback == RowReadback::sample;
    if (row.readback == RowReadback::logits) d.logits_row = step.n_logits++;
    step.n_tokens += row.n_tokens;
    s.launched_len += row.n_tokens;
    ++s.open_steps;
  }
  step.tokens.assign(plan.tokens.begin(), plan.tokens.end());
  step.samples.assign(plan.samples.begin(), plan.samples.end());
  step.biases.assign(plan.biases.begin(), plan.biases.end());
  for (RowSample& s : step.samples)
    if (s.logprobs_row != RowSample::kNone) s.logprobs_row = step.n_logprobs++;
  step.ticket = plan.ticket;
  step.slot = slot.handles;
  return {};
}

void RouterCore::on(const Launch& m, TimeNs, RouterOutbox& out) {
  State& s = *s_;
  const StepPlan& plan = *m.plan;
  Accepted answer;
  answer.ticket = plan.ticket;
  if (const ErrorCode code = s.refusal(); code != ErrorCode::none)
    answer.error = device_error(DeviceError::Phase::launch, code, label(plan.ticket) + " refused");
  for (const Effect& effect : plan.effects) {
    if (answer.error.code != ErrorCode::none) break;
    EffectOutcome outcome;
    if (std::holds_alternative<Quiesce>(effect))
      answer.error = device_error(DeviceError::Phase::effect, ErrorCode::bad_plan, "Quiesce travels alone, not in a plan");
    else
      answer.error = s.apply(effect, outcome, out);
  }
  if (answer.error.code == ErrorCode::none) answer.error = s.validate(plan);
  if (answer.error.code == ErrorCode::none) {
    RingSlot* slot = s.pick_slot(plan);
    if (slot == nullptr) {
      answer.error =
          device_error(DeviceError::Phase::launch, ErrorCode::ring_exhausted,
                       "all " + std::to_string(s.ring.size() / s.streams) + " ring slots of the stream are in flight or unread (R4)");
    } else {
      Draft<LaunchedStep> step = s.steps.draft();
      answer.error = s.reserve(plan, *step, *slot);
      if (answer.error.code == ErrorCode::none) {
        slot->use = RingSlot::Use::in_flight;
        slot->ticket = plan.ticket;
        slot->awaited = m.await;
        slot->n_logits = step->n_logits;
        s.last_step = plan.ticket.step;
        ++s.in_flight;
        ++s.in_flight_on[plan.stream];
        out.push(Enqueue{{}, std::move(step).freeze()});
      }
    }
  }
  if (answer.error.code == ErrorCode::kv_exhausted) ++s.stats.kv_refusals;
  if (answer.error.code == ErrorCode::ring_exhausted) ++s.stats.ring_refusals;
  s.reap();
  s.try_change(out);
  answer.facts = s.facts();
  out.push(std::move(answer));
}

}  // namespace troupe::actors
