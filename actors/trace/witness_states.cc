// The witness's books about versions of recurrent state: which of them rows, saves and restores name, and which are kept.
#include <algorithm>

#include "actors/trace/witness.h"

namespace troupe::actors::trace {

// SsmSnapshotSave, SsmCheckpoint: the settled version is not written again while it is kept, which may be not at all.
void Witness::keep(const Effect& effect, SeqId seq) {
  const Sequence* s = find(seq);
  if (s == nullptr || s->adopted) return;
  const auto settled = std::find_if(s->versions.begin(), s->versions.end(), [&](const Version& v) { return v.end == s->settled; });
  if (settled == s->versions.end() || s->settled % block_size_ != 0)
    return broken("R2: " + label(effect) + " at position " + std::to_string(s->settled) + ": no state of a full block is settled there");
  snapshots_[settled->version] = {s->settled, s->adapter};
}

void Witness::begin(const SsmSnapshotRestore& effect) {
  Sequence* s = find(effect.seq);
  if (s == nullptr || s->adopted) return;
  if (effect.snapshot != s->behind || s->behind == DeviceRow::kNone || s->launched != s->settled)
    broken("R2: " + label(Effect(effect)) + ": the sequence was not opened behind it, or has begun");
  s->behind = DeviceRow::kNone;
}

// Who needs what is in a version of the recurrent state, beside sequences and steps.
std::string Witness::other_user(std::uint32_t version) const {
  for (const Save& s : saves_)
    if (s.version == version) return "is still to be saved for " + label(s.seq);
  for (const Copy& c : copies_)
    if (c.state == version) return "copy " + label(c.ticket) + " in flight names";
  for (const Restore& r : restores_)
    if (r.open && r.version == version) return "comes back for " + label(r.seq);
  return {};
}

// Whose version it is.
std::string Witness::owner(std::uint32_t version) const {
  for (const Sequence& s : sequences_) {
    if (!s.live || s.adopted) continue;
    for (const Version& v : s.versions)
      if (v.version == version) return "is " + label(s.seq) + "'s of position " + std::to_string(v.end);
  }
  return other_user(version);
}

// A version that comes back is one that nobody else names.
void Witness::restore_state(const CopyBlocks& m) {
  if (order_of(m.handles.place) == nullptr) return;
  if (restores_.size() <= m.handles.place) restores_.resize(m.handles.place + 1);
  Restore& r = restores_[m.handles.place];
  const auto clash = [&](const std::string& who) { broken("R3: " + label(m) + " writes a version of the recurrent state, which " + who); };
  if (r.version != m.state || m.part == 0) {
    if (const std::string user = owner(m.state); !user.empty()) clash(user);
  }
  for (const Slot& open : ring_)
    for (std::uint32_t k = 0; open.in_flight && k < open.n_rows; ++k)
      if (open.rows[k].state_in == m.state || open.rows[k].state_out == m.state) clash(label(open.ticket) + " in flight names");
  r.version = m.state;
  state_ends_[m.state] = r.positions;
  snapshots_[m.state] = {};
}

void Witness::save_state(const CopyBlocks& m, Save& save) {
  if (m.part != save.parts || (save.known && !save.blocks.empty())) broken("R3: " + label(m) + " does not follow the copy before it");
  if (save.version ? *save.version != m.state : from_start_ && state_ends_[m.state] != save.settled)
    broken("R2: " + label(m) + " copies another version of the recurrent state than that of position " + std::to_string(save.settled));
  save.version = m.state;
  save.parts += m.n_parts;
}

// The state that a row reads is that of its position, and nobody needs what it writes over.
void Witness::recur(Sequence& s, const DeviceRow& d, OpenRow& o, const std::string& at) {
  o.state_in = d.state_in;
  o.state_out = d.state_out;
  if (d.state_out >= state_ends_.size() || (d.state_in != DeviceRow::kNone && d.state_in >= state_ends_.size()))
    return broken("R3: " + at + " names a version of the recurrent state that does not exist");
  if (!s.adopted) {
    const auto before = std::find_if(s.versions.begin(), s.versions.end(), [&](const Version& v) { return v.end == d.position; });
    const bool right = d.position == 0              ? d.state_in == DeviceRow::kNone
                       : before != s.versions.end() ? d.state_in == before->version
                                                    : !from_start_ && d.state_in != DeviceRow::kNone &&
                                                          (state_ends_[d.state_in] == 0 || state_ends_[d.state_in] == d.position);
    if (!right)
      broken("R2: " + at + " reads another version of its sequence's recurrent state than that of position " + std::to_string(d.position));
  }
  if (s.behind != DeviceRow::kNone) broken("R2: " + at + " runs before its sequence was told to begin from its snapshot");
  if (d.state_in != DeviceRow::kNone && s.versions.size() == 1 && snapshots_[d.state_in].end == d.position &&
      snapshots_[d.state_in].adapter != s.adapter)
    broken("R9: " + at + " runs under " + label(s.adapter) + " from a snapshot of " + label(snapshots_[d.state_in].adapter));
  // Its opening is not among the messages: it began behind a snapshot, and reads it again if the row is redone.
  if (s.versions.empty() && d.state_in != DeviceRow::kNone) s.versions.push_back({d.position, d.state_in});
  const auto clash = [&](const std::string& who) {
    broken("R3: " + at + " writes version " + std::to_string(d.state_out) + " of the recurrent state, which " + who);
  };
  if (d.state_out == d.state_in) clash("it reads");
  if (const std::string user = owner(d.state_out); !user.empty()) clash(user);
  for (const Slot& open : ring_)
    for (std::uint32_t k = 0; open.in_flight && k < open.n_rows; ++k)
      if (&open.rows[k] != &o && open.rows[k].seq != o.seq &&
          (open.rows[k].state_in == d.state_out || open.rows[k].state_out == d.state_out))
        clash(label(open.ticket) + " in flight names for " + label(open.rows[k].seq));
  s.versions.push_back({d.position + d.n_tokens, d.state_out});
  state_ends_[d.state_out] = d.position + d.n_tokens;
  snapshots_[d.state_out] = {};
}

}  // namespace troupe::actors::trace
