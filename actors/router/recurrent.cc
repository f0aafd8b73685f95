// Versions of recurrent state: who has which, and which of them a row reads and writes.
#include "actors/router/state.h"

namespace troupe::actors {

bool RouterCore::State::take_states(RouterSequence& s) {
  if (free_states.size() < states_each()) return false;
  s.states.assign(free_states.end() - states_each(), free_states.end());
  s.state_ends.assign(states_each(), 0);
  free_states.resize(free_states.size() - states_each());
  return true;
}

void RouterCore::State::give_states(RouterSequence& s) {
  free_states.insert(free_states.end(), s.states.begin(), s.states.end());
  s.states.clear();
}

void RouterCore::State::next_state(RouterSequence& s, std::uint32_t n_tokens, DeviceRow& row) const {
  if (!model.has_ssm_layers) return;
  const auto n = static_cast<std::uint32_t>(s.states.size());
  row.state_in = row.position == 0 ? DeviceRow::kNone : s.states[s.launched_state % n];
  ++s.launched_state;
  row.state_out = s.states[s.launched_state % n];
  s.state_ends[s.launched_state % n] = row.position + n_tokens;
}

// Rows settle in order, each with the version that it wrote.
void RouterCore::State::settle_state(RouterSequence& s) const {
  const auto n = static_cast<std::uint32_t>(s.states.size());
  while (s.settled_state < s.launched_state && s.state_ends[(s.settled_state + 1) % n] <= s.settled_len) ++s.settled_state;
}

std::string RouterCore::State::check_states(std::vector<std::uint32_t>& owners) const {
  owners.assign(model.ssm_states, 0);
  for (const std::uint32_t v : free_states) ++owners[v];
  for (const RouterSequence& q : sequences) {
    if (q.id.incarnation == 0) continue;
    if (q.states.size() != states_each()) return "R3: " + label(q.id) + " has " + std::to_string(q.states.size()) + " versions of its state";
    for (const std::uint32_t v : q.states) ++owners[v];
    if (q.states.empty() || q.released) continue;
    if (q.launched_state - q.settled_state >= q.states.size()) return "R3: " + label(q.id) + " has more versions in flight than it owns";
    const std::uint32_t n = states_each();
    if (q.settled_len != (q.settled_state == 0 ? 0 : q.state_ends[q.settled_state % n]) ||
        q.launched_len != (q.launched_state == 0 ? 0 : q.state_ends[q.launched_state % n]))
      return "R2: the state versions of " + label(q.id) + " are not those of its lengths";
  }
  for (std::uint32_t v = 0; v < owners.size(); ++v)
    if (owners[v] != 1) return "R8: state version " + std::to_string(v) + " is in " + std::to_string(owners[v]) + " places";
  return {};
}

}  // namespace troupe::actors
