// Saving a sequence's KV to a file and bringing it back, a piece at a time: device <-> a place's page-locked memory <->
// the spill actor. A copy is a user of the blocks that it names, as a step is (R3); a place serves one sequence at a
// time, and there are few of them (R11).
//
// Of a model with recurrent layers the settled version of the state is saved behind the blocks, and comes back as the first version
// of the sequence that is opened: what its rows read is a matter of which version they name, as ever. No step writes a settled
// version, and it is the sequence's until its fence.
//
// On a stream of their own, copies are ordered behind the compute stream once per save and restore, by an event (R12). That is
// enough: what is saved is settled and its sequence has no more steps; what is brought back goes into blocks that nothing in
// flight names. The wait is for steps that failed half-way and may still write. Steps that come later need none, for they are
// launched when the copies have completed.
#include <algorithm>

#include "actors/router/state.h"

namespace troupe::actors {

namespace {

DeviceError failed(ErrorCode code, std::string what) { return device_error(DeviceError::Phase::effect, code, std::move(what)); }

}  // namespace

std::uint32_t RouterCore::State::first_block(std::uint32_t settled) const {
  return std::min(model.blocks_behind(settled), settled / model.block_size);
}

std::uint32_t RouterCore::State::blocks_end(std::uint32_t settled) const { return (settled + model.block_size - 1) / model.block_size; }

SpillPlace* RouterCore::State::free_place() {
  for (SpillPlace& p : places)
    if (p.use == SpillPlace::Use::free) return &p;
  return nullptr;
}

SpillPlace* RouterCore::State::find_place(std::uint32_t index, SpillPlace::Use a, SpillPlace::Use b) {
  if (index >= places.size() || (places[index].use != a && places[index].use != b)) return nullptr;
  return &places[index];
}

std::uint32_t RouterCore::State::copies_in_flight() const {
  return static_cast<std::uint32_t>(
      std::count_if(places.begin(), places.end(), [](const SpillPlace& p) { return p.ordering() || p.copying(); }));
}

std::uint32_t RouterCore::State::busy_places() const {
  return static_cast<std::uint32_t>(std::count_if(places.begin(), places.end(), [](const SpillPlace& p) {
    return p.use != SpillPlace::Use::free && p.use != SpillPlace::Use::retired;
  }));
}

StatePiece RouterCore::State::piece_of(const SpillPlace& p) const {
  StatePiece piece;
  piece.place = p.handles.place;
  piece.seq = p.state;
  piece.positions = p.positions;
  piece.first_block = p.first_block;
  piece.n_blocks = static_cast<std::uint32_t>(p.blocks.size());
  piece.n_parts = p.n_parts;
  piece.block_bytes = p.handles.block_bytes;
  piece.begin = p.begin;
  piece.count = p.count;
  piece.data = p.handles.staging;
  return piece;
}

void RouterCore::State::next_piece(SpillPlace& p) {
  p.begin += p.count;
  const auto blocks = static_cast<std::uint32_t>(p.blocks.size());
  p.count = std::min(p.handles.blocks, (p.begin < blocks ? blocks : blocks + p.n_parts) - p.begin);
}

// The first copy of a save or a restore: behind what is on the compute stream by now.
void RouterCore::State::begin_copy(SpillPlace& p, bool to_host, RouterOutbox& out) {
  if (p.handles.order == 0) return start_copy(p, to_host, 0, out);
  if (config.fault == RouterFault::wait_unrecorded) return start_copy(p, to_host, p.handles.order, out);
  p.use = to_host ? SpillPlace::Use::ordering_out : SpillPlace::Use::ordering_in;
  p.mark = {config.incarnation, next_mark++};
  ++stats.marks;
  out.push(RecordEvent{{}, p.mark, p.handles.place, p.handles.order});
}

void RouterCore::State::start_copy(SpillPlace& p, bool to_host, std::uint64_t after, RouterOutbox& out) {
  p.use = to_host ? SpillPlace::Use::copying_out : SpillPlace::Use::copying_in;
  p.copy = {config.incarnation, next_copy++};
  CopyBlocks copy{{}, p.copy, p.handles, to_host, {}, after};
  if (p.begin < p.blocks.size()) {
    copy.blocks.assign(p.blocks.begin() + p.begin, p.blocks.begin() + p.begin + p.count);
  } else {
    copy.state = p.version;
    copy.part = p.begin - static_cast<std::uint32_t>(p.blocks.size());
    copy.n_parts = p.count;
  }
  out.push(std::move(copy));
}

// The effect SaveSequenceState of a live sequence. Steps that name it went to the stream before, so the copy finds what
// they wrote; positions that are not settled are not saved.
DeviceError RouterCore::State::save(RouterSequence& s, EffectOutcome& outcome, RouterOutbox& out) {
  ++stats.saves;
  const std::uint32_t n = blocks_end(s.settled_len) - s.behind;
  SpillPlace* p = free_place();
  if (p == nullptr || n == 0) {
    ++stats.save_failures;
    const RequestId request = s.request;
    const SeqId seq = s.id;
    const DeviceError wrong = release(s, outcome);
    Saved answer{{}, request, seq, 0, failed(ErrorCode::overloaded, "nothing is settled"), facts()};
    if (n > 0) answer.error.what = "every place for saving a sequence is taken: it is computed again";
    out.push(std::move(answer));
    return wrong;
  }
  p->state = s.id;
  p->request = s.request;
  p->record = static_cast<std::uint32_t>(&s - sequences.data());
  p->positions = s.settled_len;
  p->first_block = s.behind;
  p->blocks.assign(s.table.begin() + s.behind, s.table.begin() + s.behind + n);
  p->n_parts = 0;
  if (model.has_ssm_layers) {
    p->version = version_of(s, config.fault == RouterFault::save_newest_state ? s.launched_state : s.settled_state);
    p->n_parts = p->handles.state_parts;
  }
  p->begin = p->count = 0;
  p->holds = config.fault != RouterFault::free_before_copy;
  if (p->holds) ++s.open_copies;
  next_piece(*p);
  const DeviceError wrong = release(s, outcome);
  begin_copy(*p, true, out);
  return wrong;
}

// No copy of this save will read the blocks any more.
void RouterCore::State::settle_save(SpillPlace& p) {
  if (!std::exchange(p.holds, false)) return;
  RouterSequence& s = sequences[p.record];
  --s.open_copies;
  if (s.at_fence()) finish_release(s);
}

void RouterCore::State::end_save(SpillPlace& p, DeviceError error, RouterOutbox& out) {
  settle_save(p);
  if (error.code != ErrorCode::none) ++stats.save_failures;
  p.leave();
  out.push(Saved{{}, p.request, p.state, error.code == ErrorCode::none ? p.positions : 0, std::move(error), facts()});
}

// Of an Open that names a saved state: slot and blocks, all or nothing.
void RouterCore::State::begin_restore(RouterSequence& s, const Open& m, RouterOutbox& out) {
  SpillPlace& p = *free_place();
  s.behind = first_block(m.restore_len);
  s.table.assign(s.behind, kNoBlock);
  for (std::uint32_t i = s.behind; i < blocks_end(m.restore_len); ++i) s.table.push_back(cache.take().value());
  reap();
  // At least one token is left to compute: the last known one's row gives the next.
  s.launched_len = s.settled_len = std::min(m.restore_len, m.n_tokens - 1);
  s.resend = true;
  p.state = m.restore;
  p.request = m.request;
  p.record = static_cast<std::uint32_t>(&s - sequences.data());
  p.positions = m.restore_len;
  p.first_block = s.behind;
  p.blocks.assign(s.table.begin() + s.behind, s.table.end());
  p.n_parts = 0;
  if (model.has_ssm_layers) {
    p.version = begin_at(s, s.settled_len);
    p.n_parts = p.handles.state_parts;
  }
  p.begin = p.count = 0;
  next_piece(p);
  p.use = SpillPlace::Use::reading;
  out.push(ReadState{{}, piece_of(p)});
}

// Why an Open that names a saved state is refused, its file untouched; code none: begin_restore will do.
DeviceError RouterCore::State::refuse_restore(const Open& m) {
  const std::uint32_t n = blocks_end(m.restore_len) - first_block(m.restore_len);
  const bool only_forward = model.window != 0 || model.has_ssm_layers;  // the last known token cannot be computed once more
  const bool past = m.restore_len > m.n_tokens || (only_forward && m.restore_len == m.n_tokens);
  if (n == 0 || past || m.n_tokens > model.context_length)
    return failed(ErrorCode::bad_plan, "a restore of " + std::to_string(m.restore_len) + " positions of " + std::to_string(m.n_tokens));
  if (free_place() == nullptr) return failed(ErrorCode::overloaded, "every place for bringing a sequence back is taken");
  if (n <= cache.available()) return {};
  DeviceError e = failed(ErrorCode::kv_exhausted, "the saved sequence needs " + std::to_string(n) + " KV blocks, " +
                                                      std::to_string(cache.available()) + " are free");
  e.missing_blocks = n - cache.available();
  return e;
}

void RouterCore::State::end_restore(SpillPlace& p, const Error& error, RouterOutbox& out) {
  RouterSequence& s = sequences[p.record];
  p.leave();
  Opened answer;
  answer.request = p.request;
  answer.restore = p.state;
  answer.restored = error.code == ErrorCode::none;
  if (answer.restored) {
    ++stats.restores;
    if (model.has_ssm_layers && s.params) cut(s, s.settled_len, 0);
  } else {
    ++stats.restore_failures;
    for (auto block = p.blocks.rbegin(); block != p.blocks.rend(); ++block) (void)cache.drop(*block, false);
    s.table.clear();
    s.behind = s.launched_len = s.settled_len = 0;
    s.launched_state = s.settled_state = 0;
    s.resend = false;
    if (const ErrorCode code = refusal(); code != ErrorCode::none) {
      finish_release(s);
      answer.error = failed(code, error.what);
    } else {
      find_prefix(s);
    }
  }
  if (answer.error.code == ErrorCode::none) {
    answer.seq = s.id;
    answer.slot = s.slot;
    answer.cached_len = s.settled_len;
    answer.cut_first = s.cut_first;
    answer.cut_second = s.cut_second;
    if (s.stateless) answer.snapshot = s.base;
  }
  answer.facts = facts();
  out.push(std::move(answer));
}

void RouterCore::on(const EventRecorded& m, TimeNs, RouterOutbox& out) {
  State& s = *s_;
  SpillPlace* p = s.find_place(m.place, SpillPlace::Use::ordering_out, SpillPlace::Use::ordering_in);
  if (p == nullptr || p->mark != m.mark) {
    ++s.stats.late;
    return;
  }
  if (m.error.code == ErrorCode::device_lost) s.lost = true;
  const bool to_host = p->use == SpillPlace::Use::ordering_out;
  DeviceError error{DeviceError::Phase::launch, m.error.code, 0, 0, m.error.what};
  if (const ErrorCode code = s.refusal(); code != ErrorCode::none && error.code == ErrorCode::none)
    error = failed(code, "the device is of no more use");
  if (error.code == ErrorCode::none) {
    s.start_copy(*p, to_host, p->handles.order, out);
  } else if (to_host) {
    s.end_save(*p, std::move(error), out);
  } else {
    if (!p->last_piece()) out.push(DropState{{}, p->state});
    s.end_restore(*p, Error{error.code, error.what}, out);
  }
  settle_waiters(out);
}

void RouterCore::on(const CopyDone& m, TimeNs, RouterOutbox& out) {
  State& s = *s_;
  SpillPlace* p = s.find_place(m.place, SpillPlace::Use::copying_out, SpillPlace::Use::copying_in);
  if (p == nullptr || p->copy != m.copy) {
    ++s.stats.late;
    return;
  }
  if (m.error.code == ErrorCode::device_lost) s.lost = true;
  const bool tearing = s.life != State::Life::open;
  // Part of a copy that could not be enqueued whole may still run, and use the place's memory.
  const bool retire = m.error.code != ErrorCode::none && m.error.phase == DeviceError::Phase::forward;
  // On another stream than a step's it may write its blocks at any time, and nothing will say when it is over: no step is safe.
  const bool beside = p->handles.order != 0 || s.streams > 1;
  if (retire && p->use == SpillPlace::Use::copying_in && beside && s.config.fault != RouterFault::trust_half_copy) s.lost = true;
  DeviceError error = m.error;
  if (error.code == ErrorCode::none && tearing) error = failed(ErrorCode::closed, "the router is torn down");
  if (p->use == SpillPlace::Use::copying_out) {
    if (error.code != ErrorCode::none) {
      if (p->begin > 0) out.push(DropState{{}, p->state});
      s.end_save(*p, std::move(error), out);
    } else {
      if (p->last_piece()) s.settle_save(*p);
      p->use = SpillPlace::Use::writing;
      out.push(WriteState{{}, s.piece_of(*p)});
    }
  } else if (error.code != ErrorCode::none) {
    if (!p->last_piece()) out.push(DropState{{}, p->state});
    s.end_restore(*p, Error{error.code, error.what}, out);
  } else if (p->last_piece()) {
    s.end_restore(*p, {}, out);
  } else {
    s.next_piece(*p);
    p->use = SpillPlace::Use::reading;
    out.push(ReadState{{}, s.piece_of(*p)});
  }
  if (retire) p->use = SpillPlace::Use::retired;
  settle_waiters(out);
}

void RouterCore::on(const StateWritten& m, TimeNs, RouterOutbox& out) {
  State& s = *s_;
  SpillPlace* p = s.find_place(m.place, SpillPlace::Use::writing, SpillPlace::Use::writing);
  if (p == nullptr || p->state != m.seq) {
    ++s.stats.late;
    return;
  }
  if (m.error.code != ErrorCode::none) {
    s.end_save(*p, failed(m.error.code, m.error.what), out);
  } else if (p->last_piece()) {
    s.end_save(*p, {}, out);
  } else if (const ErrorCode code = s.refusal(); code != ErrorCode::none) {
    out.push(DropState{{}, p->state});
    s.end_save(*p, failed(code, "the device is of no more use"), out);
  } else {
    s.next_piece(*p);
    s.start_copy(*p, true, 0, out);
  }
  settle_waiters(out);
}

void RouterCore::on(const StateRead& m, TimeNs, RouterOutbox& out) {
  State& s = *s_;
  SpillPlace* p = s.find_place(m.place, SpillPlace::Use::reading, SpillPlace::Use::reading);
  if (p == nullptr || p->state != m.seq) {
    ++s.stats.late;
    return;
  }
  if (m.error.code != ErrorCode::none) {
    s.end_restore(*p, m.error, out);
  } else if (const ErrorCode code = s.refusal(); code != ErrorCode::none) {
    if (!p->last_piece()) out.push(DropState{{}, p->state});
    s.end_restore(*p, Error{code, "the device is of no more use"}, out);
  } else if (p->begin == 0) {
    s.begin_copy(*p, false, out);
  } else {
    s.start_copy(*p, false, 0, out);
  }
  settle_waiters(out);
}

std::string RouterCore::State::check_places(std::vector<std::uint32_t>& copies) const {
  copies.assign(sequences.size(), 0);
  for (const SpillPlace& p : places) {
    if (p.use == SpillPlace::Use::free || p.use == SpillPlace::Use::retired) continue;
    const RouterSequence& q = sequences[p.record];
    const bool reading = p.use == SpillPlace::Use::ordering_out || p.use == SpillPlace::Use::copying_out;
    const bool saving = reading || p.use == SpillPlace::Use::writing;
    if (saving && p.holds) ++copies[p.record];
    if (saving && p.holds && (q.id != p.state || !q.fenced))
      return "R3: " + label(p.state) + " is being saved, and its record is another's or not fenced";
    if (!saving && (q.id.incarnation == 0 || q.request != p.request || q.released ||
                    !std::equal(p.blocks.begin(), p.blocks.end(), q.table.begin() + q.behind, q.table.end())))
      return "R3: " + label(p.state) + " is being brought back into blocks that its sequence does not hold";
    const bool owned = p.n_parts == 0 || p.version == q.base || std::find(q.states.begin(), q.states.end(), p.version) != q.states.end();
    if ((!saving || p.holds) && !owned)
      return "R3: version " + std::to_string(p.version) + " of the recurrent state is copied for " + label(p.state) +
             ", and is not its sequence's";
    if (!reading) continue;
    if (p.n_parts != 0 && std::find(free_states.begin(), free_states.end(), p.version) != free_states.end())
      return "R3: version " + std::to_string(p.version) + " of the recurrent state is free, and is still to be saved";
    for (std::uint32_t i = p.begin; i < std::min<std::size_t>(p.begin + p.count, p.blocks.size()); ++i)
      if (pool.class_of(p.blocks[i]) == device::BlockPool::Class::free)
        return "R3: block " + std::to_string(p.blocks[i]) + " is free, and a copy in flight reads it";
  }
  return {};
}

}  // namespace troupe::actors
