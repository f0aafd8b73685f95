#include "actors/trace/witness.h"

#include <algorithm>

namespace troupe::actors::trace {

namespace {

constexpr std::uint64_t kMostRequests = 1u << 26;  // generations count the requests of a run

}  // namespace

Witness::Witness(const ModelInfo& m, std::uint32_t ring_slots, bool from_start, bool tokens)
    : block_size_(m.block_size),
      window_(m.window),
      recurrent_(m.has_ssm_layers),
      from_start_(from_start),
      tokens_(tokens),
      sequences_(m.n_slots),
      ring_(ring_slots),
      adapters_(m.max_loras + 2),
      snapshots_(m.has_ssm_layers ? m.ssm_states : 0),
      state_ends_(m.has_ssm_layers ? m.ssm_states : 0) {
  for (Sequence& s : sequences_) s.table.assign((m.context_length + m.block_size - 1) / m.block_size, 0);
}

void Witness::broken(std::string what) {
  if (violation_.empty()) violation_ = std::move(what);
}

std::uint32_t Witness::in_flight() const {
  return static_cast<std::uint32_t>(std::count_if(ring_.begin(), ring_.end(), [](const Slot& s) { return s.in_flight; }));
}

void Witness::hit(const RequestId& id) {
  if (id.generation >= kMostRequests) return;
  if (hits_.size() <= id.generation) hits_.resize(id.generation + 1);
  ++hits_[id.generation];
}

Witness::Sequence* Witness::find(SeqId seq) {
  for (Sequence& s : sequences_)
    if (s.live && s.seq == seq) return &s;
  return nullptr;
}

std::uint32_t Witness::first_block(std::uint32_t position) const {
  return window_ == 0 ? 0 : (position - std::min(position, window_ - 1)) / block_size_;
}

bool Witness::named(const Sequence& s, BlockId block) const {
  const auto end = s.table.begin() + s.blocks;
  return std::find(s.table.begin() + std::min(first_block(s.settled), s.blocks), end, block) != end;
}

void Witness::opened(const Opened& m) {
  const auto restore = std::find_if(restores_.begin(), restores_.end(), [&](const Restore& r) { return r.open && r.seq == m.restore; });
  if (restore != restores_.end()) restore->open = false;
  if (m.error.code != ErrorCode::none) return;
  if (m.slot >= sequences_.size())
    return broken("R3: " + label(m.seq) + " was opened in slot " + std::to_string(m.slot) + ", which does not exist");
  Sequence& s = sequences_[m.slot];
  if (s.live && !s.adopted)
    broken("R3: slot " + std::to_string(m.slot) + " was given to " + label(m.seq) + " while " + label(s.seq) + " lives in it");
  for (const Slot& slot : ring_)
    for (std::uint32_t i = 0; slot.in_flight && i < slot.n_rows; ++i)
      if (slot.rows[i].seq == s.seq)
        broken("R3: slot " + std::to_string(m.slot) + " was given to " + label(m.seq) + " while " + label(slot.ticket) + " names it for " +
               label(s.seq));
  s.seq = m.seq;
  s.request = m.request;
  s.live = true;
  s.adopted = false;
  s.settled = s.launched = m.cached_len;
  s.epoch = s.blocks = 0;
  s.versions.clear();
  if (recurrent_ && m.restored && restore != restores_.end() && restore->version != DeviceRow::kNone)
    s.versions.push_back({restore->positions, restore->version});
  s.behind = m.snapshot;
  if (m.snapshot == DeviceRow::kNone) return;
  if (m.snapshot >= snapshots_.size() || (from_start_ && snapshots_[m.snapshot].end != m.cached_len))
    return broken("R2: " + label(m.seq) + " was opened behind position " + std::to_string(m.cached_len) + ", and version " +
                  std::to_string(m.snapshot) + " of the recurrent state is no snapshot of a settled state there");
  s.versions.push_back({m.cached_len, m.snapshot});
}

void Witness::apply(const Effect& effect) {
  if (const auto* e = std::get_if<Commit>(&effect)) {
    if (Sequence* s = find(e->seq)) {
      if (!s->adopted && (e->settled_len > s->launched || e->settled_len < s->settled))
        broken("R2: " + label(effect) + " of positions that were not launched, or backwards");
      s->settled = e->settled_len;
      std::erase_if(s->versions, [&](const Version& v) { return v.end < s->settled; });
    }
  } else if (const auto* e = std::get_if<Rollback>(&effect)) {
    if (Sequence* s = find(e->seq)) {
      s->epoch = e->epoch;
      s->launched = s->settled;
      std::erase_if(s->versions, [&](const Version& v) { return v.end > s->settled; });
    }
  } else if (const auto* e = std::get_if<ReleaseSeq>(&effect)) {
    if (Sequence* s = find(e->seq))
      s->live = false;
    else if (from_start_)
      broken("R3: " + label(effect) + ": it was released before, or never opened");
  } else if (const auto* e = std::get_if<SaveSequenceState>(&effect)) {
    if (Sequence* s = find(e->seq)) {
      s->live = false;
      const std::uint32_t n = (s->settled + block_size_ - 1) / block_size_;
      saves_.push_back({.seq = e->seq, .blocks = {}, .settled = s->settled, .known = s->blocks >= n && !s->adopted});
      const auto version = std::find_if(s->versions.begin(), s->versions.end(), [&](const Version& v) { return v.end == s->settled; });
      if (version != s->versions.end() && !s->adopted) saves_.back().version = version->version;
      if (s->blocks >= n) saves_.back().blocks.assign(s->table.begin() + std::min(first_block(s->settled), n), s->table.begin() + n);
    } else if (from_start_) {
      broken("R3: " + label(effect) + ": it was released before, or never opened");
    }
  } else if (const auto* e = std::get_if<SsmSnapshotSave>(&effect)) {
    keep(effect, e->seq);
  } else if (const auto* e = std::get_if<SsmCheckpoint>(&effect)) {
    keep(effect, e->seq);
  } else if (const auto* e = std::get_if<SsmSnapshotRestore>(&effect)) {
    begin(*e);
  } else if (const auto* e = std::get_if<ReadLogits>(&effect)) {
    for (Slot& slot : ring_)
      if (slot.ticket == e->ticket) slot.busy = false;
  }
}

// Block `block` is written by a step or a copy, on behalf of `by`: nobody else may have it, or be about to read it.
void Witness::written(const std::string& at, BlockId block, SeqId by) {
  const auto clash = [&](const std::string& who) { broken("R3: " + at + " writes block " + std::to_string(block) + ", which " + who); };
  for (const Sequence& other : sequences_)
    if (other.live && other.seq != by && named(other, block)) clash(label(other.seq) + " has too");
  for (const Slot& open : ring_)
    for (std::uint32_t k = 0; open.in_flight && k < open.n_rows; ++k)
      if (open.rows[k].seq != by && std::count(open.rows[k].blocks.begin(), open.rows[k].blocks.end(), block) > 0)
        clash(label(open.ticket) + " in flight names for " + label(open.rows[k].seq));
  for (const Save& save : saves_)
    if (std::count(save.blocks.begin(), save.blocks.end(), block) > 0) clash("is still to be saved for " + label(save.seq));
  for (const Copy& copy : copies_)
    if (std::count(copy.blocks.begin(), copy.blocks.end(), block) > 0) clash("copy " + label(copy.ticket) + " in flight names");
}

Witness::Order* Witness::order_of(std::uint32_t place) {
  if (place >= kMostPlaces) {
    broken("R11: place " + std::to_string(place) + " for a copy: no runtime has so many");
    return nullptr;
  }
  if (orders_.size() <= place) orders_.resize(place + 1);
  return &orders_[place];
}

void Witness::record(const RecordEvent& m) {
  if (Order* o = order_of(m.place)) *o = {m.mark, false, false};
}

void Witness::recorded(const EventRecorded& m) {
  Order* o = order_of(m.place);
  if (o != nullptr && m.error.code == ErrorCode::none && (o->mark == m.mark || !from_start_)) o->marked = true;
}

void Witness::read_state(const ReadState& m) {
  Order* o = order_of(m.piece.place);
  if (o == nullptr || m.piece.begin != 0) return;
  o->ordered = false;
  if (restores_.size() <= m.piece.place) restores_.resize(m.piece.place + 1);
  restores_[m.piece.place] = {m.piece.seq, m.piece.positions, DeviceRow::kNone, true};
}

// A copy on a stream of its own: the first of a save or a restore waits for the event that the compute stream has recorded for it.
void Witness::order(const CopyBlocks& m) {
  if (m.handles.order == 0) return;
  Order* o = order_of(m.handles.place);
  if (o == nullptr) return;
  if (m.after != 0) {
    if (m.after != m.handles.order || !o->marked) broken("R12: " + label(m) + " for an event that the compute stream has not recorded");
    o->marked = false;
    o->ordered = true;
  } else if (!o->ordered && from_start_) {
    broken("R12: " + label(m) + ": nothing orders it behind the compute stream");
  }
}

void Witness::copy(const CopyBlocks& m) {
  order(m);
  Copy c{.ticket = m.copy, .out = m.out, .seq = {}, .blocks = m.blocks, .beside = m.handles.order != 0};
  if (m.n_parts != 0) {
    if (m.state >= state_ends_.size()) return broken("R3: " + label(m) + ": there is no such version of recurrent state");
    c.last_part = std::uint64_t{m.part} + m.n_parts >= m.handles.state_parts;
  }
  if (m.out) {
    auto save = std::find_if(saves_.begin(), saves_.end(), [&](const Save& s) { return s.place == m.handles.place; });
    if (save == saves_.end()) save = std::find_if(saves_.begin(), saves_.end(), [](const Save& s) { return s.place == Save{}.place; });
    if (save == saves_.end() && !from_start_) return;
    if (save == saves_.end() ||
        (save->known && (save->blocks.size() < m.blocks.size() || !std::equal(m.blocks.begin(), m.blocks.end(), save->blocks.begin()))))
      return broken("R3: " + label(m) + " copies other blocks than are to be saved");
    save->place = m.handles.place;
    c.seq = save->seq;
    if (m.n_parts != 0) save_state(m, *save);
  } else {
    for (const BlockId block : m.blocks) written(label(m), block, {});
    if (m.n_parts != 0) restore_state(m);
  }
  if (m.n_parts != 0) c.state = m.state;
  copies_.push_back(std::move(c));
}

void Witness::copy_done(const CopyDone& m) {
  const auto copy = std::find_if(copies_.begin(), copies_.end(), [&](const Copy& c) { return c.ticket == m.copy; });
  if (copy == copies_.end()) return;
  // Nothing says when it is over, nor is it before the next step's work: it may write at any time.
  if (m.error.code == ErrorCode::device_failed && m.error.phase == DeviceError::Phase::forward && copy->beside && !copy->out) return;
  for (Save& s : saves_)
    if (copy->out && s.known && s.seq == copy->seq)
      s.blocks.erase(s.blocks.begin(), s.blocks.begin() + static_cast<std::ptrdiff_t>(std::min(s.blocks.size(), copy->blocks.size())));
  for (Save& s : saves_)
    if (copy->out && copy->last_part && s.seq == copy->seq) s.version.reset();
  copies_.erase(copy);
}

void Witness::saved(const Saved& m) {
  for (const Save& s : saves_)
    if (s.seq == m.seq && s.place < orders_.size()) orders_[s.place].ordered = false;
  std::erase_if(saves_, [&](const Save& s) { return s.seq == m.seq; });
}

void Witness::launch(const Launch& m) {
  for (const Effect& e : m.plan->effects) apply(e);
  plan_ = m.plan;
}

void Witness::enqueue(const LaunchedStep& step) {
  if (!plan_ && !from_start_) return;
  if (!plan_ || plan_->ticket != step.ticket || plan_->rows.size() != step.rows.size())
    return broken("R6: " + label(step) + " is not the plan that was launched");
  if (step.ticket.step <= last_step_) broken("R6: " + label(step.ticket) + " comes after step " + std::to_string(last_step_));
  last_step_ = step.ticket.step;
  if (step.slot.slot >= ring_.size())
    return broken("R4: " + label(step.ticket) + " has ring slot " + std::to_string(step.slot.slot) + ", which does not exist");
  Slot& slot = ring_[step.slot.slot];
  if (slot.busy)
    broken("R4: ring slot " + std::to_string(step.slot.slot) + " was given to " + label(step.ticket) + " while " + label(slot.ticket) +
           " uses it");
  for (const TableDelta& d : step.deltas) {
    if (d.slot >= sequences_.size() || d.index >= sequences_[d.slot].table.size())
      return broken("R3: " + label(step.ticket) + " changes a block table beyond its end");
    sequences_[d.slot].table[d.index] = d.block;
  }
  slot.busy = slot.in_flight = true;
  slot.ticket = step.ticket;
  slot.stream = step.slot.stream;
  if (slot.stream != plan_->stream) broken("R12: " + label(step) + " is not on the stream that it was planned for");
  slot.n_rows = 0;
  if (slot.rows.size() < step.rows.size()) slot.rows.resize(step.rows.size());
  for (std::uint32_t i = 0; i < step.rows.size(); ++i) {
    const DeviceRow& d = step.rows[i];
    const Row& row = plan_->rows[i];
    const std::string at = label(step.ticket) + " row " + std::to_string(i);
    if (d.slot >= sequences_.size()) return broken("R3: " + at + " uses a slot that does not exist");
    Sequence& s = sequences_[d.slot];
    if (!from_start_ && (!s.live || (s.adopted && s.seq != row.seq))) {
      s.seq = row.seq;
      s.request = {};
      s.live = s.adopted = true;
      s.epoch = row.epoch;
      s.launched = d.position;
      s.settled = s.blocks = 0;
    }
    if (!s.live || s.seq != row.seq) broken("R3: " + at + " uses the slot of another sequence");
    if (row.epoch != s.epoch || d.position != s.launched)
      broken("R2: " + at + " is at position " + std::to_string(d.position) + " where " + std::to_string(s.launched) + " is due");
    const std::uint64_t last = (std::uint64_t{d.position} + d.n_tokens + block_size_ - 1) / block_size_;
    if (last > s.table.size()) return broken("R3: " + at + " goes beyond the end of its block table");
    const auto end = static_cast<std::uint32_t>(last);
    for (const Slot& open : ring_)
      for (std::uint32_t k = 0; open.in_flight && open.stream != slot.stream && k < open.n_rows; ++k)
        if (open.rows[k].seq == row.seq)
          broken("R12: " + at + " runs beside " + label(open.ticket) + ", which is on another stream and names " + label(row.seq) + " too");
    s.launched = d.position + d.n_tokens;
    OpenRow& o = slot.rows[slot.n_rows++];
    o.seq = row.seq;
    o.request = s.request;
    o.blocks.clear();
    if (!s.adopted) {
      s.blocks = std::max(s.blocks, end);
      for (std::uint32_t b = first_block(d.position); b < end; ++b)
        if (s.table[b] == kNoBlock)
          broken("R3: " + at + ", at position " + std::to_string(d.position) + ", reads block " + std::to_string(b) +
                 " of its sequence, which went back");
      for (std::uint32_t b = d.position / block_size_; b < end; ++b) written(at, s.table[b], row.seq);
      o.blocks.assign(s.table.begin(), s.table.begin() + end);
    }
    o.adapter = s.adapter = row.adapter;
    const bool known = row.adapter.slot < adapters_.size() && (from_start_ || adapters_[row.adapter.slot] != 0);
    if (d.adapter_slot != row.adapter.slot || (known ? adapters_[row.adapter.slot] != row.adapter.generation : from_start_))
      broken("R9: " + at + " names " + label(row.adapter) + ", which is not in the table");
    feed(row, d, o, at);
    if (recurrent_) recur(s, d, o, at);
  }
}

void Witness::feed(const Row& row, const DeviceRow& d, OpenRow& o, const std::string& at) {
  o.fed = row.source.is_feed();
  if (!o.fed) return;
  o.from = row.source.feed_ticket();
  o.from_row = row.source.feed_row();
  if (!from_start_ && d.feed_cells < ring_.size() && ring_[d.feed_cells].ticket == Ticket{}) return;
  const bool right =
      d.feed_tag == o.from.tag() && d.feed_cells < ring_.size() && ring_[d.feed_cells].ticket == o.from && d.index == o.from_row;
  if (!right) broken("R6: " + at + " is fed from " + label(o.from) + "[" + std::to_string(o.from_row) + "] and reads another cell");
}

void Witness::change(const ChangeTable& m) {
  for (const Slot& slot : ring_)
    for (std::uint32_t i = 0; m.hide.slot != 0 && slot.in_flight && i < slot.n_rows; ++i)
      if (slot.rows[i].adapter == m.hide) broken("R9: " + label(m) + " while " + label(slot.ticket) + " names it");
  if (m.hide.slot >= adapters_.size() || m.show.slot >= adapters_.size()) return broken("R9: " + label(m) + " beyond the end of the table");
  if (m.show.slot != 0 && m.show.generation <= newest_)
    broken("R9: " + label(m) + " after generation " + std::to_string(newest_) + ": it would find the other's blocks");
  if (m.show.slot != 0) newest_ = m.show.generation;
  if (m.hide.slot != 0) adapters_[m.hide.slot] = 0;
  if (m.show.slot != 0) adapters_[m.show.slot] = m.show.generation;
}

void Witness::completed(const Completed& m) {
  if (m.ring_slot >= ring_.size()) return broken("R4: a completion of ring slot " + std::to_string(m.ring_slot) + ", which does not exist");
  Slot& slot = ring_[m.ring_slot];
  const StepResult& result = *m.result;
  if (slot.ticket != result.ticket) return;
  slot.in_flight = false;
  if (result.logits.n_rows == 0) slot.busy = false;
  Past& past = past_[result.ticket.step % past_.size()];
  past.ticket = result.ticket;
  past.failed = !result.ok();
  past.rows.assign(result.rows.begin(), result.rows.end());
  if (result.ok() && result.rows.size() < slot.n_rows) return broken("R5: " + label(result.ticket) + " has fewer results than rows");
  for (std::uint32_t i = 0; i < slot.n_rows; ++i) {
    const OpenRow& row = slot.rows[i];
    if (!result.ok() || result.rows[i].status != CellStatus::ok) hit(row.request);
    if (!result.ok() || !row.fed) continue;
    const Past& from = past_[row.from.step % past_.size()];
    if (from.ticket != row.from || (!from.failed && row.from_row >= from.rows.size())) continue;
    const Readback& rb = result.rows[i];
    const bool source_ok = !from.failed && from.rows[row.from_row].status == CellStatus::ok;
    if (tokens_ && rb.status == CellStatus::ok && source_ok && rb.input != from.rows[row.from_row].id)
      broken("R6: " + label(result.ticket) + " row " + std::to_string(i) + " read another id than its source wrote");
    if ((rb.status == CellStatus::stale_feed || rb.status == CellStatus::poisoned) && source_ok)
      broken("R6: " + label(result.ticket) + " row " + std::to_string(i) + ": " + name(rb.status) + ", and its source was well");
  }
}

}  // namespace troupe::actors::trace
