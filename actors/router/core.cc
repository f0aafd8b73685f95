#include "actors/router/core.h"

#include <algorithm>

#include "actors/router/state.h"

namespace troupe::actors {

DeviceError device_error(DeviceError::Phase phase, ErrorCode code, std::string what, std::uint32_t row) {
  DeviceError e;
  e.phase = phase;
  e.code = code;
  e.row = row;
  e.what = std::move(what);
  return e;
}

RouterCore::State::State(const RouterConfig& c, const ModelInfo& m)
    : config(c),
      model(m),
      depth(std::max(1u, std::min(c.depth, m.max_depth))),
      table_capacity((m.context_length + m.block_size - 1) / m.block_size),
      pool(m.kv_blocks),
      cache(pool, m.block_size),
      sequences(m.n_slots * 2),                           // as many again may be detached
      adapters(m.max_loras == 0 ? 0 : m.max_loras + 2) {  // slot 0, and one that is loaded while the others serve
  for (auto i = static_cast<std::uint32_t>(sequences.size()); i > 0; --i) free_records.push_back(i - 1);
  for (std::uint32_t i = m.n_slots; i > 0; --i) free_slots.push_back(i - 1);
  for (std::uint32_t i = m.has_ssm_layers ? m.ssm_states : 0; i > 0; --i) free_states.push_back(i - 1);
  kept.resize(free_states.size());
  for (RouterSequence& s : sequences) {
    s.table.reserve(table_capacity);
    s.states.reserve(states_each());
    s.state_ends.reserve(states_each());
  }
  if (m.window != 0) window_fences.reserve(m.kv_blocks);
}

RouterSequence* RouterCore::State::find(SeqId id) {
  const std::uint64_t record = id.number & 0xFFFF;
  if (id.incarnation == 0 || record >= sequences.size() || sequences[record].id != id) return nullptr;
  return &sequences[record];
}

RingSlot* RouterCore::State::find(Ticket ticket) {
  for (RingSlot& slot : ring)
    if (slot.ticket == ticket && slot.use != RingSlot::Use::free) return &slot;
  return nullptr;
}

ErrorCode RouterCore::State::refusal() const {
  if (life != Life::open) return ErrorCode::closed;
  return lost ? ErrorCode::device_lost : ErrorCode::none;
}

DeviceFacts RouterCore::State::facts() const {
  DeviceFacts f;
  f.total_blocks = pool.total();
  f.free_blocks = pool.free();
  f.used_blocks = pool.used();
  f.cached_blocks = pool.cached();
  f.fenced_blocks = pool.fenced();
  f.total_slots = model.n_slots;
  f.free_slots = static_cast<std::uint32_t>(free_slots.size());
  f.ring_slots = static_cast<std::uint32_t>(ring.size());
  f.free_ring_slots =
      static_cast<std::uint32_t>(std::count_if(ring.begin(), ring.end(), [](const RingSlot& r) { return r.use == RingSlot::Use::free; }));
  f.in_flight = in_flight;
  if (model.has_ssm_layers) {
    f.has_ssm = true;
    f.ssm_total = model.ssm_states;
    f.ssm_used = model.ssm_states - free_versions();
    f.ssm_snapshots = idle_snapshots;
    f.ssm_sequences = free_versions() / states_each();
  }
  return f;
}

RouterCore::RouterCore(const RouterConfig& config, const ModelInfo& model) : s_(std::make_unique<State>(config, model)) {}
RouterCore::~RouterCore() = default;

DeviceFacts RouterCore::facts() const { return s_->facts(); }

RouterStats RouterCore::stats() const {
  RouterStats stats = s_->stats;
  stats.reclaimed = s_->cache.reclaimed();
  return stats;
}

void RouterCore::on(const RingReady& m, TimeNs, RouterOutbox&) {
  s_->ring.resize(m.slots.size());
  for (std::size_t i = 0; i < m.slots.size(); ++i) {
    s_->ring[i].handles = m.slots[i];
    s_->ring[i].rows.reserve(s_->model.max_rows);
    std::uint32_t& stream = s_->ring[i].handles.stream;
    stream = std::min(stream, kStepStreams - 1);
    s_->streams = std::max(s_->streams, stream + 1);
  }
  s_->places.resize(m.places.size());
  for (std::size_t i = 0; i < m.places.size(); ++i) s_->places[i].handles = m.places[i];
}

// The published blocks that hold the beginning of what is known of a new sequence.
void RouterCore::State::find_prefix(RouterSequence& s) {
  if (!s.params) return;
  if (model.has_ssm_layers) {
    find_snapshot(s);
  } else {
    s.last_published = cache.acquire(s.known(), s.adapter, s.table);
    s.published = static_cast<std::uint32_t>(s.table.size());
  }
  s.launched_len = s.settled_len = s.published * model.block_size;
  s.resend = s.published > 0;
  stats.prefix_hits += s.published > 0 ? 1 : 0;
  stats.prefix_blocks += s.published;
  publish_next(s);
  reclaim(s, s.settled_len);
}

void RouterCore::on(const Open& m, TimeNs, RouterOutbox& out) {
  State& s = *s_;
  Opened answer;
  answer.request = m.request;
  ErrorCode code = s.refusal();
  if (code == ErrorCode::none && !s.has(m.adapter)) code = ErrorCode::adapter_gone;
  if (code == ErrorCode::none && (s.free_slots.empty() || s.free_records.empty() || s.free_versions() < s.states_each()))
    code = ErrorCode::slot_exhausted;
  const bool restore = m.restore.incarnation != 0;
  answer.restore = m.restore;
  if (code == ErrorCode::none && restore) answer.error = s.refuse_restore(m);
  if (answer.error.code != ErrorCode::none) {
    answer.facts = s.facts();
    out.push(std::move(answer));
    return;
  }
  if (code == ErrorCode::none) {
    const std::uint32_t record = s.free_records.back();
    s.free_records.pop_back();
    RouterSequence& q = s.sequences[record];
    std::vector<BlockId> table = std::move(q.table);
    auto output = std::move(q.output);
    auto states = std::move(q.states), ends = std::move(q.state_ends);
    q = {};
    q.states = std::move(states);
    q.state_ends = std::move(ends);
    s.take_states(q);
    q.table = std::move(table);
    q.output = std::move(output);
    q.id = {s.config.incarnation, s.next_serial++ << 16 | record};
    q.request = m.request;
    q.adapter = m.adapter;
    q.slot = s.free_slots.back();
    s.free_slots.pop_back();
    if (s.config.prefix_cache && m.params && m.params->prompt.size() + m.output.size() <= s.model.context_length) {
      q.keep_history(m.params, m.output, s.model.context_length);
      s.publish_next(q);
    }
    if (restore) return s.begin_restore(q, m, out);  // answered when it is there
    s.find_prefix(q);
    answer.cached_len = q.settled_len;
    answer.seq = q.id;
    answer.slot = q.slot;
    answer.cut_first = q.cut_first;
    answer.cut_second = q.cut_second;
    if (q.stateless) answer.snapshot = q.base;
  } else {
    answer.error = device_error(DeviceError::Phase::effect, code, "open of " + label(m.request) + " refused");
  }
  answer.facts = s.facts();
  out.push(std::move(answer));
}

void RouterCore::on(const Await& m, TimeNs, RouterOutbox& out) {
  State& s = *s_;
  RingSlot* slot = s.find(m.ticket);
  const bool unknown = slot == nullptr || slot->use == RingSlot::Use::held;
  if (unknown || slot->awaited) {
    Draft<StepResult> result = s.errors.draft();
    result->ticket = m.ticket;
    result->error = unknown ? device_error(DeviceError::Phase::readback, ErrorCode::unknown_ticket,
                                           label(m.ticket) + " is not open: never launched, or settled and already awaited")
                            : device_error(DeviceError::Phase::readback, ErrorCode::twice_awaited, label(m.ticket) + " is awaited already");
    out.push(Settled{{}, std::move(result).freeze(), s.facts()});
    return;
  }
  slot->awaited = true;
  if (slot->use == RingSlot::Use::in_flight) return;
  Settled settled{{}, std::move(slot->result), {}};
  slot->use = settled.result->logits.n_rows > 0 ? RingSlot::Use::held : RingSlot::Use::free;
  settled.facts = s.facts();
  out.push(std::move(settled));
}

void RouterCore::on(const Completed& m, TimeNs, RouterOutbox& out) {
  State& s = *s_;
  if (m.ring_slot >= s.ring.size() || s.ring[m.ring_slot].use != RingSlot::Use::in_flight ||
      s.ring[m.ring_slot].ticket != m.result->ticket) {
    ++s.stats.late;
    return;
  }
  RingSlot& slot = s.ring[m.ring_slot];
  --s.in_flight;
  --s.in_flight_on[slot.handles.stream];
  for (std::size_t i = 0; i < slot.rows.size(); ++i) {
    OpenRow& row = slot.rows[i];
    row.ahead_blocks = 0;
    RouterSequence& q = s.sequences[row.record];
    if (m.result->ok() && i < m.result->rows.size()) s.learn(q, row, m.result->rows[i]);
    if (m.result->error.code != ErrorCode::none)
      q.resend = true;  // the step may not have changed the device's tables
    else if (row.whole_table)
      q.resend = false;
    --q.open_steps;
    if (q.at_fence()) s.finish_release(q);
  }
  s.settle_window(slot.ticket.step, slot.handles.stream);
  if (m.result->error.code == ErrorCode::device_lost) s.lost = true;
  if (slot.awaited) {
    slot.use = m.result->logits.n_rows > 0 ? RingSlot::Use::held : RingSlot::Use::free;
    out.push(Settled{{}, m.result, s.facts()});
  } else {
    slot.use = RingSlot::Use::unread;
    slot.result = m.result;
  }
  settle_waiters(out);
}

void RouterCore::settle_waiters(RouterOutbox& out) {
  State& s = *s_;
  s.try_change(out);
  if (s.in_flight + s.copies_in_flight() > 0) return;
  if (s.quiesce_pending) {
    s.quiesce_pending = false;
    out.push(Applied{{}, {}, {}, s.facts()});
  }
  if (s.life == State::Life::tearing && s.busy_places() == 0) finish_teardown(out);
}

void RouterCore::on(const Teardown&, TimeNs, RouterOutbox& out) {
  State& s = *s_;
  if (s.life == State::Life::closed) {
    out.push(TornDown{{}, s.facts()});
    return;
  }
  s.life = State::Life::tearing;
  if (s.in_flight + s.busy_places() == 0) finish_teardown(out);
}

// Nothing is in flight, no place is at work: every sequence and every ring slot goes back, and the router answers `closed` from now on.
void RouterCore::finish_teardown(RouterOutbox& out) {
  State& s = *s_;
  for (RouterSequence& q : s.sequences) {
    if (q.id.incarnation == 0) continue;
    if (!q.released)
      for (std::uint32_t i = q.behind; i < q.table.size(); ++i) (void)s.cache.drop(q.table[i], false);
    s.finish_release(q);
  }
  for (RingSlot& slot : s.ring) {
    slot.use = RingSlot::Use::free;
    slot.result = {};
  }
  s.cache.clear();
  s.reap();
  s.quiesce_pending = false;
  s.life = State::Life::closed;
  out.push(TornDown{{}, s.facts()});
}

}  // namespace troupe::actors
