// Effects: what the scheduler settled, and what it asks for, about sequences (messages/effect.h).
#include <algorithm>

#include "actors/router/state.h"

namespace troupe::actors {

namespace {

DeviceError bad(std::string what) { return device_error(DeviceError::Phase::effect, ErrorCode::bad_plan, std::move(what)); }

DeviceError unsupported(const char* effect) {
  return device_error(DeviceError::Phase::effect, ErrorCode::unsupported, std::string(effect) + ": this model has no such state");
}

}  // namespace

// What a row read at the position after the known ones is the sequence's next token, if the row still counts.
void RouterCore::State::learn(RouterSequence& s, const OpenRow& row, const Readback& read) {
  if (row.position != s.known_len || s.released || s.id != row.seq || s.epoch != row.epoch) return;
  *s.next_known++ = read.input;
  ++s.known_len;
}

// Full blocks of the first `len` known tokens, once they are settled; they are never written again (R3).
void RouterCore::State::publish(RouterSequence& s, std::uint32_t len) {
  if (!s.params) return;
  const device::TokenHistory known = s.known();
  const std::uint32_t full = std::min({s.settled_len, known.size(), len}) / model.block_size;
  while (s.published < full && s.published >= s.behind) {  // what went back unpublished ends the chain
    const BlockId block = s.table[s.published];
    s.last_published = cache.publish(block, s.last_published, known, s.published * model.block_size, s.adapter);
    stats.published += s.last_published.block == block ? 1 : 0;
    ++s.published;
  }
  publish_next(s);
}

// What a sequence was opened with is published as it settles, for others may begin alike at this moment; what it generates
// when it leaves, so that no step pays for it; but blocks go back from behind a window, and are published before.
void RouterCore::State::publish_next(RouterSequence& s) const {
  const std::uint32_t next = (s.published + 1) * model.block_size;
  s.publish_at = s.params && (model.window != 0 || next <= s.opened_len) ? next : RouterSequence::kNever;
}

void RouterCore::State::finish_release(RouterSequence& s) {
  // Last block first: what is idle longest is reclaimed first, and a block is of no use without those before it.
  if (s.fenced)
    for (auto block = s.table.rbegin(); block != s.table.rend() - s.behind; ++block) (void)cache.settle(*block);
  if (s.slot != RouterSequence::kNoSlot) free_slots.push_back(s.slot);
  free_records.push_back(static_cast<std::uint32_t>(&s - sequences.data()));
  give_states(s);
  s.table.clear();
  s.forget_history();
  s.id = {};
}

// The sequence leaves at once; its slot and blocks do when nothing in flight names them (R3).
DeviceError RouterCore::State::release(RouterSequence& s, EffectOutcome& outcome) {
  publish(s, s.settled_len);
  keep_checkpoint(s);
  const bool fence = s.open_copies > 0 || is_named(s);
  ++(fence ? stats.releases_fenced : stats.releases_now);
  for (auto block = s.table.rbegin(); block != s.table.rend() - s.behind; ++block) {
    if (auto dropped = cache.drop(*block, fence); dropped.has_error())
      return device_error(DeviceError::Phase::effect, dropped.error().code, dropped.error().what);
  }
  outcome.fenced = fence;
  outcome.blocks = fence ? 0 : static_cast<std::uint32_t>(s.table.size()) - s.behind;
  if (config.fault == RouterFault::states_at_finish) give_states(s);
  s.released = true;
  s.fenced = fence;
  if (!fence) finish_release(s);
  return {};
}

DeviceError RouterCore::State::apply(const Effect& effect, EffectOutcome& outcome, RouterOutbox& out) {
  // Every effect but ReadLogits and Quiesce names a live sequence.
  RouterSequence* s = std::visit(
      [&](const auto& e) -> RouterSequence* {
        if constexpr (requires { e.seq; })
          return find(e.seq);
        else
          return nullptr;
      },
      effect);
  if (!std::holds_alternative<ReadLogits>(effect) && !std::holds_alternative<Quiesce>(effect) && (s == nullptr || s->released))
    return bad(label(effect) + ": the sequence is not live");

  if (const auto* e = std::get_if<Commit>(&effect)) {
    if (e->epoch != s->epoch || e->settled_len < s->settled_len || e->settled_len > s->launched_len)
      return bad(label(effect) + ": epoch " + std::to_string(s->epoch) + ", settled " + std::to_string(s->settled_len) + ", launched " +
                 std::to_string(s->launched_len));
    if (!has_state(*s, e->settled_len))
      return bad(label(effect) + ": no row ends there, and the recurrent state is known at rows' ends only");
    const bool optimistic = config.fault == RouterFault::optimistic_length;
    s->settled_len = optimistic && model.window == 0 ? s->launched_len : e->settled_len;
    settle_state(*s);
    if (s->settled_len >= s->publish_at) publish(*s, model.window != 0 ? s->settled_len : s->opened_len);
    reclaim(*s, optimistic ? s->launched_len : s->settled_len);
  } else if (const auto* e = std::get_if<Advance>(&effect)) {
    // The step may have completed since the scheduler planned; then its bookings are gone already.
    if (RingSlot* slot = find(e->ticket)) {
      if (e->row >= slot->rows.size() || slot->rows[e->row].seq != e->seq) return bad(label(effect) + ": the row is another sequence's");
      slot->rows[e->row].ahead_blocks = 0;
    }
  } else if (const auto* e = std::get_if<Rollback>(&effect)) {
    if (e->epoch <= s->epoch) return bad(label(effect) + ": the sequence is at epoch " + std::to_string(s->epoch));
    s->epoch = e->epoch;
    if (config.fault != RouterFault::skip_rollback) s->launched_len = s->settled_len;
    if (config.fault != RouterFault::newest_state) s->launched_state = s->settled_state;
    s->forget_from(s->settled_len);
    for (RingSlot& slot : ring)
      for (OpenRow& row : slot.rows)
        if (row.seq == e->seq) row.ahead_blocks = 0;
  } else if (std::holds_alternative<ReleaseSeq>(effect)) {
    return release(*s, outcome);
  } else if (std::holds_alternative<SaveSequenceState>(effect)) {
    return save(*s, outcome, out);
  } else if (const auto* e = std::get_if<ReadLogits>(&effect)) {
    RingSlot* slot = find(e->ticket);
    if (slot == nullptr || slot->use != RingSlot::Use::held) return bad(label(effect) + ": no logits of that ticket are held");
    slot->use = RingSlot::Use::free;
  } else if (const auto* e = std::get_if<ReserveKv>(&effect)) {
    const std::uint32_t want = (std::min(e->positions, model.context_length) + model.block_size - 1) / model.block_size;
    if (e->positions > model.context_length) return bad(label(effect) + ": past the context of " + std::to_string(model.context_length));
    const auto have = static_cast<std::uint32_t>(s->table.size());
    if (want > have && want - have > cache.available()) {
      DeviceError error = device_error(DeviceError::Phase::effect, ErrorCode::kv_exhausted, label(effect) + ": not enough free KV blocks");
      error.missing_blocks = want - have - cache.available();
      return error;
    }
    while (s->table.size() < want) {
      s->table.push_back(cache.take().value());
      s->resend = true;
      ++outcome.blocks;
    }
  } else if (const auto* e = std::get_if<CompactSlot>(&effect)) {
    const auto free = std::find(free_slots.begin(), free_slots.end(), e->to_slot);
    if (s->open_steps > 0 || s->slot == RouterSequence::kNoSlot || free == free_slots.end())
      return device_error(DeviceError::Phase::effect, ErrorCode::not_quiescent,
                          label(effect) + ": a ticket in flight names a slot, or it is taken");
    free_slots.erase(free);
    free_slots.push_back(s->slot);
    s->slot = e->to_slot;
    s->resend = true;
  } else if (std::holds_alternative<DetachSlot>(effect)) {
    if (s->open_steps > 0)
      return device_error(DeviceError::Phase::effect, ErrorCode::not_quiescent, label(effect) + ": a ticket in flight names the slot");
    if (s->slot != RouterSequence::kNoSlot) free_slots.push_back(s->slot);
    s->slot = RouterSequence::kNoSlot;
  } else if (std::holds_alternative<Quiesce>(effect)) {
    if (quiesce_pending) return bad("Quiesce: one is pending already");
    quiesce_pending = in_flight + copies_in_flight() > 0;
  } else if (model.has_ssm_layers) {
    return apply_ssm(*s, effect);
  } else {
    return unsupported(label(effect).c_str());
  }
  return {};
}

void RouterCore::on(const Apply& m, TimeNs, RouterOutbox& out) {
  State& s = *s_;
  Applied answer;
  if (const ErrorCode code = s.refusal(); code != ErrorCode::none)
    answer.error = device_error(DeviceError::Phase::effect, code, label(m.effect) + " refused");
  else
    answer.error = s.apply(m.effect, answer.outcome, out);
  if (s.quiesce_pending && std::holds_alternative<Quiesce>(m.effect) && answer.error.code == ErrorCode::none)
    return;  // answered when it is reached
  s.reap();
  s.try_change(out);
  answer.facts = s.facts();
  out.push(std::move(answer));
}

}  // namespace troupe::actors
