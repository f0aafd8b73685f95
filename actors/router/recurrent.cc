// Versions of recurrent state: who has which, and which of them a row reads and writes.
#include <utility>

#include "actors/router/state.h"

namespace troupe::actors {

void RouterCore::State::take_states(RouterSequence& s) {
  s.states.clear();
  for (std::uint32_t i = 0; i < states_each(); ++i) s.states.push_back(take_version().value());
  s.state_ends.assign(states_each(), 0);
}

void RouterCore::State::give_states(RouterSequence& s) {
  free_states.insert(free_states.end(), s.states.begin(), s.states.end());
  s.states.clear();
  if (s.base != RouterSequence::kNoSlot) unpin(std::exchange(s.base, RouterSequence::kNoSlot));
  if (s.checkpoint != RouterSequence::kNoSlot) unpin(std::exchange(s.checkpoint, RouterSequence::kNoSlot));
}

std::uint32_t RouterCore::State::state_end(const RouterSequence& s, std::uint32_t v) const {
  if (s.base != RouterSequence::kNoSlot && v == s.base_at) return s.base_end;
  return v == 0 ? 0 : s.state_ends[v % s.states.size()];
}

std::uint32_t RouterCore::State::version_of(const RouterSequence& s, std::uint32_t v) const {
  return s.base != RouterSequence::kNoSlot && v == s.base_at ? s.base : s.states[v % s.states.size()];
}

std::uint32_t RouterCore::State::begin_at(RouterSequence& s, std::uint32_t len) const {
  s.settled_state = s.launched_state = 1;
  s.state_ends[1] = len;
  return s.states[1];
}

void RouterCore::State::next_state(RouterSequence& s, std::uint32_t n_tokens, DeviceRow& row) const {
  if (!model.has_ssm_layers) return;
  const auto n = static_cast<std::uint32_t>(s.states.size());
  if (row.position != 0) row.state_in = version_of(s, s.launched_state);
  ++s.launched_state;
  row.state_out = s.states[s.launched_state % n];
  s.state_ends[s.launched_state % n] = row.position + n_tokens;
}

bool RouterCore::State::has_state(const RouterSequence& s, std::uint32_t len) const {
  if (!model.has_ssm_layers) return true;
  for (std::uint32_t v = s.settled_state; v <= s.launched_state; ++v)
    if (state_end(s, v) == len) return true;
  return false;
}

// Rows settle in order, each with the version that it wrote.
void RouterCore::State::settle_state(RouterSequence& s) {
  const auto n = static_cast<std::uint32_t>(s.states.size());
  const std::uint32_t before = s.settled_state;
  while (s.settled_state < s.launched_state && s.state_ends[(s.settled_state + 1) % n] <= s.settled_len) ++s.settled_state;
  if (s.settled_state == before) return;
  // Whatever read it has run: it came before the row that settled now.
  if (s.base != RouterSequence::kNoSlot && s.settled_state > s.base_at) unpin(std::exchange(s.base, RouterSequence::kNoSlot));
}

std::string RouterCore::State::check_states(std::vector<std::uint32_t>& owners) const {
  if (!model.has_ssm_layers) return {};
  owners.assign(model.ssm_states, 0);
  std::vector<std::uint32_t> pins(model.ssm_states, 0);
  for (const std::uint32_t v : free_states) ++owners[v];
  for (const RouterSequence& q : sequences) {
    if (q.id.incarnation == 0) continue;
    if (q.states.size() != states_each())
      return "R3: " + label(q.id) + " has " + std::to_string(q.states.size()) + " versions of its state";
    for (const std::uint32_t v : q.states) ++owners[v];
    for (const std::uint32_t v : {q.base, q.checkpoint})
      if (v != RouterSequence::kNoSlot) ++pins[v];
    if (q.released) continue;
    if (q.launched_state - q.settled_state >= q.states.size()) return "R3: " + label(q.id) + " has more versions in flight than it owns";
    if (q.settled_len != state_end(q, q.settled_state) || q.launched_len != state_end(q, q.launched_state))
      return "R2: the state versions of " + label(q.id) + " are not those of its lengths";
  }
  std::uint32_t idle = 0;
  for (std::uint32_t v = 0; v < owners.size(); ++v) {
    const bool snapshot = kept[v].block != kNoBlock;
    if (kept[v].pins != pins[v]) return "R3: the sequences that read state version " + std::to_string(v) + " are miscounted";
    idle += snapshot && pins[v] == 0 ? 1 : 0;
    const std::uint32_t places = owners[v] + (snapshot || pins[v] > 0 ? 1 : 0);
    if (places != 1) return "R8: state version " + std::to_string(v) + " is in " + std::to_string(places) + " places";
  }
  if (idle != idle_snapshots) return "R8: the snapshots that nobody reads are miscounted";
  return {};
}

}  // namespace troupe::actors
