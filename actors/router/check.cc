// The router's books, recounted: for tests, the simulator and fault dumps.
#include <algorithm>

#include "actors/router/core.h"
#include "actors/router/state.h"

namespace troupe::actors {

std::string RouterCore::check() const {
  const State& s = *s_;
  const auto& pool = s.pool;
  if (pool.free() + pool.used() + pool.cached() + pool.fenced() != pool.total()) return "R8: the block classes do not sum to the total";
  auto &entries = s_->count_entries, &fenced = s_->count_fences, &slots = s_->count_slots, &open = s_->count_open;
  entries.assign(pool.total(), 0);
  fenced.assign(pool.total(), 0);
  slots.assign(s.model.n_slots, 0);
  open.assign(s.sequences.size(), 0);
  std::uint32_t in_flight = 0;
  for (const RingSlot& r : s.ring) {
    if (r.use != RingSlot::Use::in_flight) continue;
    ++in_flight;
    for (const OpenRow& row : r.rows) {
      ++open[row.record];
      const RouterSequence& q = s.sequences[row.record];
      if (q.id != row.seq) return "R3: the record of " + label(row.seq) + " was reused while " + label(r.ticket) + " names it";
      if (q.stream != r.handles.stream) return "R12: steps of two streams name " + label(row.seq);
      if (row.ahead_blocks > q.table.size()) return "R8: more blocks are booked ahead for " + label(row.seq) + " than it has";
    }
  }
  if (in_flight != s.in_flight || in_flight != s.in_flight_on[kComputeStream] + s.in_flight_on[kPrefillStream])
    return "R4: the tickets in flight are miscounted";
  if (auto wrong = s.check_states(s_->count_states); !wrong.empty()) return wrong;
  if (auto wrong = s.check_places(s_->count_copies); !wrong.empty()) return wrong;
  for (std::size_t i = 0; i < s.sequences.size(); ++i) {
    const RouterSequence& q = s.sequences[i];
    if (q.id.incarnation == 0) {
      if (open[i] != 0) return "R3: a freed sequence is named by a step in flight";
      continue;
    }
    if (q.adapter.slot != 0 && !s.has(q.adapter))
      return "R9: " + label(q.id) + " runs under " + label(q.adapter) + ", which is not in the table";
    if (open[i] != q.open_steps) return "R3: open steps of " + label(q.id) + " are miscounted";
    if (s.count_copies[i] != q.open_copies) return "R3: open copies of " + label(q.id) + " are miscounted";
    if (q.at_fence()) return "R3: " + label(q.id) + " is past its fence and was not given back";
    if (q.settled_len > q.launched_len || q.launched_len > q.table.size() * s.model.block_size)
      return "R8: lengths of " + label(q.id) + ": settled " + std::to_string(q.settled_len) + ", launched " +
             std::to_string(q.launched_len) + ", covered " + std::to_string(q.table.size() * s.model.block_size);
    if (q.slot != RouterSequence::kNoSlot && slots[q.slot]++ != 0) return "R3: slot " + std::to_string(q.slot) + " has two sequences";
    if (q.behind > s.model.blocks_behind(q.settled_len))
      return "R3: " + label(q.id) + ", settled to " + std::to_string(q.settled_len) + ", gave back " + std::to_string(q.behind) +
             " blocks and still reads the last of them";
    for (std::uint32_t k = 0; k < q.table.size(); ++k) {
      const BlockId block = q.table[k];
      if ((block == kNoBlock) != (k < q.behind)) return "R8: the table of " + label(q.id) + " has a gap, or a block behind the window";
      if (block == kNoBlock) continue;
      if (q.released)
        ++fenced[block];
      else
        ++entries[block];
    }
  }
  for (const WindowFence& f : s.window_fences) {
    ++fenced[f.block];
    const bool in_flight_still = std::any_of(
        s.ring.begin(), s.ring.end(), [&](const RingSlot& r) { return r.use == RingSlot::Use::in_flight && r.ticket.step == f.step; });
    if (!in_flight_still) return "R3: block " + std::to_string(f.block) + " is fenced for a step that has settled";
  }
  for (const std::uint32_t slot : s.free_slots)
    if (slots[slot]++ != 0) return "R3: slot " + std::to_string(slot) + " is free and taken";
  if (std::count(slots.begin(), slots.end(), 1u) != static_cast<std::ptrdiff_t>(slots.size())) return "R8: a slot is lost";
  for (BlockId b = 0; b < pool.total(); ++b) {
    if (pool.references(b) != entries[b])
      return "R8: block " + std::to_string(b) + " has " + std::to_string(pool.references(b)) + " references and " +
             std::to_string(entries[b]) + " table entries";
    if (pool.fences(b) != fenced[b]) return "R3: block " + std::to_string(b) + " is fenced without a fence, or the reverse";
    const auto cls = pool.class_of(b);
    if (cls == device::BlockPool::Class::free && entries[b] + fenced[b] > 0)
      return "R3: block " + std::to_string(b) + " is free and in a table";
    // Of a model with a window a block may leave the cache while it is used: the one before it went back and was reclaimed.
    if (entries[b] > 1 && !pool.published(b) && s.model.window == 0)
      return "R3: block " + std::to_string(b) + " has two users and is not in the prefix cache";
  }
  for (const RouterSequence& q : s.sequences) {
    if (q.id.incarnation == 0 || q.released) continue;
    for (std::uint32_t i = q.settled_len / s.model.block_size; i < q.table.size(); ++i)
      if (q.table[i] != kNoBlock && (pool.published(q.table[i]) || entries[q.table[i]] > 1))
        return "R3: " + label(q.id) + " may still write block " + std::to_string(q.table[i]) + ", which is shared or in the prefix cache";
  }
  return s.cache.check();
}

}  // namespace troupe::actors
