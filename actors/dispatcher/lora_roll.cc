// LoRA commands over several replicas: one after the other, so that the others serve meanwhile; what was done is put back if
// asked for, and a replica that is started again is given what the others have.
#include <fmt/format.h>

#include "actors/dispatcher/state.h"

namespace troupe::actors {

using Kind = LoraCommand::Kind;

namespace {

LoraCommand load(const std::string& name, const std::string& path) {
  LoraCommand c;
  c.kind = Kind::promote_disk;
  c.name = name;
  c.path = path;
  return c;
}

bool loads(Kind kind) { return kind == Kind::promote_disk || kind == Kind::load_into_slot || kind == Kind::promote; }

}  // namespace

// The newest command whose outcome the request has to see.
std::uint64_t DispatcherCore::State::concerns(const Request& request) const {
  if (model.max_loras == 0) return 0;
  const std::string& name = request.adapter.empty() ? standard : request.adapter;
  std::uint64_t newest_one = request.adapter.empty() ? newest_rotate : 0;
  if (name.empty()) return newest_one;
  if (const auto it = newest_of.find(name); it != newest_of.end()) newest_one = std::max(newest_one, it->second);
  return std::max(newest_one, newest_any);
}

void DispatcherCore::on(const LoraSubmit& m, TimeNs now, DispatcherOutbox& out) {
  State& s = *s_;
  const auto refuse = [&](ErrorCode code, std::string what) {
    LoraAnswer refused;
    refused.id = m.id;
    refused.ack.name = m.command.name;
    refused.error = Error{code, std::move(what)};
    out.push(std::move(refused));
  };
  if (s.model.max_loras == 0)
    return refuse(ErrorCode::unsupported, "the model was loaded without room for adapters: load it with max_loras above 0");
  if (s.lone) return out.push(m);
  const LoraCommand& c = m.command;
  const auto index_of = [&](const std::string& name) {
    const auto it = std::find_if(s.replicas.begin(), s.replicas.end(), [&](const State::Replica& r) { return r.name == name; });
    return it == s.replicas.end() ? std::optional<std::uint32_t>() : std::optional(it->ref.index);
  };
  if (!c.replica.empty() && !index_of(c.replica)) return refuse(ErrorCode::not_found, fmt::format("there is no replica \"{}\"", c.replica));
  if (s.draining) return refuse(ErrorCode::closed, "the runtime is draining and takes no commands");
  if (s.rolls.size() + s.lists.size() > s.config.max_commands)
    return refuse(ErrorCode::overloaded, fmt::format("{} LoRA commands wait already; try again later", s.rolls.size() + s.lists.size()));
  State::Roll roll;
  roll.id = roll.as = m.id;
  roll.command = c;
  roll.path = c.path;
  if (c.kind == Kind::promote) {
    roll.source = index_of(c.peer);
    if (!roll.source) return refuse(ErrorCode::no_such_peer, fmt::format("there is no replica \"{}\" to take adapters from", c.peer));
  }
  if (c.kind == Kind::list) {
    s.lists.push_back(std::move(roll));
  } else {
    s.newest = m.id;
    if (c.kind == Kind::rotate)
      s.newest_rotate = m.id;
    else
      s.newest_of[c.name] = m.id;
    if (c.kind == Kind::load_into_slot) s.newest_any = m.id;
    s.rolls.push_back(std::move(roll));
  }
  s.pump(now, out);
}

void DispatcherCore::State::roll_on(TimeNs, DispatcherOutbox& out) {
  for (auto it = lists.begin(); it != lists.end();) it = step(*it, out) ? lists.erase(it) : it + 1;
  while (!rolls.empty() && step(rolls.front(), out)) rolls.pop_front();
}

bool DispatcherCore::State::step(Roll& roll, DispatcherOutbox& out) {
  if (roll.at) return false;
  if (!roll.begun) {
    roll.begun = true;
    roll.covered.assign(replicas.size(), false);
    roll.before = registry;
    roll.before_standard = standard;
    if (roll.source) {
      Replica& peer = replicas[*roll.source];
      if (peer.serves()) {
        roll.at = *roll.source;
        roll.sent = roll.id;
        out.push(FetchAdapter{{}, roll.id, roll.command.adapter.empty() ? roll.command.name : roll.command.adapter, peer.ref});
        return false;
      }
      roll.error = Error{ErrorCode::no_such_peer, fmt::format("replica \"{}\" is {}", peer.name, name(peer.state))};
    }
  }
  const bool stop = roll.error.code != ErrorCode::none && (roll.command.roll_back || (roll.source && !roll.image));
  // One that is not there now may be when the others are done; if not, it is given what they have when it is up.
  for (Replica& r : replicas) {
    if (roll.undoing || roll.covered[r.ref.index]) continue;
    const bool named = roll.command.replica.empty() ? !(roll.source && *roll.source == r.ref.index) : roll.command.replica == r.name;
    if (named && !stop && !r.serves()) continue;
    roll.covered[r.ref.index] = true;
    if (roll.command.kind != Kind::list) r.lora_seen = std::max(r.lora_seen, roll.id);
    if (!named || stop) continue;
    const auto given = r.adapters.find(roll.command.name);
    if (loads(roll.command.kind) && given != r.adapters.end() && given->second == roll.as) {  // when it came back
      (void)roll.outcome_of(r);
      continue;
    }
    roll.at = r.ref.index;
    roll.sent = roll.as;
    out.push(LoraSubmit{{}, roll.sent, roll.command, r.ref, roll.image});
    return false;
  }
  for (Replica& r : replicas) {
    if (roll.undoing || roll.covered[r.ref.index]) continue;
    roll.covered[r.ref.index] = true;
    roll.outcome_of(r).error =
        Error{ErrorCode::unavailable, fmt::format("the replica is {}; it is given what the others have when it is up", name(r.state))};
  }
  if (!roll.undoing && roll.command.roll_back && roll.error.code != ErrorCode::none) {
    roll.undoing = true;
    stats.undone += roll.undo.empty() ? 0 : 1;
    registry = roll.before;
    standard = roll.before_standard;
    std::reverse(roll.undo.begin(), roll.undo.end());
  }
  while (roll.undoing && !roll.undo.empty()) {
    const Undo u = std::move(roll.undo.front());
    roll.undo.erase(roll.undo.begin());
    Replica& r = replicas[u.replica];
    if (!r.serves()) continue;  // it is given what the others have when it is up
    roll.at = u.replica;
    roll.sent = u.id;
    roll.undo_command = u.command;
    out.push(LoraSubmit{{}, u.id, u.command, r.ref, {}});
    return false;
  }
  finish_roll(roll, out);
  return true;
}

void DispatcherCore::State::finish_roll(Roll& roll, DispatcherOutbox& out) {
  LoraAnswer answer;
  answer.id = roll.id;
  answer.ack = std::move(roll.ack);
  answer.ack.name = roll.command.name;
  answer.error = roll.error;
  const auto done = [](const LoraOutcome& o) { return o.error.code == ErrorCode::none; };
  if (answer.error.code == ErrorCode::none && std::none_of(roll.outcomes.begin(), roll.outcomes.end(), done))
    answer.error = roll.outcomes.empty() ? Error{ErrorCode::unavailable, "the command names no replica that could do it"}
                                         : roll.outcomes.front().error;
  for (const LoraOutcome& o : roll.outcomes) answer.ack.paused_ns = std::max(answer.ack.paused_ns, o.paused_ns);
  answer.ack.replicas = std::move(roll.outcomes);
  if (roll.command.kind != Kind::list) {
    ++stats.rolled;
    passed = roll.id;
    std::erase_if(newest_of, [&](const auto& n) { return n.second <= passed; });
    // What nobody has any more, and nobody is about to be given.
    std::erase_if(registry, [&](const auto& entry) {
      return std::none_of(replicas.begin(), replicas.end(),
                          [&](const Replica& r) { return r.comes() || r.adapters.count(entry.first) != 0; });
    });
    if (!standard.empty() && registry.count(standard) == 0) standard.clear();
    std::erase_if(paths, [&](const auto& path) {
      const auto has = [&](const auto& adapter) { return adapter.second == path.first; };
      const auto listed = [&](const auto& entry) { return entry.second.id == path.first; };
      return std::none_of(registry.begin(), registry.end(), listed) &&
             std::none_of(replicas.begin(), replicas.end(),
                          [&](const Replica& r) { return std::any_of(r.adapters.begin(), r.adapters.end(), has); });
    });
  }
  out.push(std::move(answer));
}

// One replica did it: what it has now, what a new one is to be given, and how to put it back.
void DispatcherCore::State::did(Replica& r, const Roll& roll, const LoraAck& ack, std::vector<Undo>& undo) {
  const LoraCommand& c = roll.command;
  // What it had itself: a command before may have failed here.
  const auto reload = [&](const std::string& name) {
    const auto it = r.adapters.find(name);
    if (it != r.adapters.end()) undo.push_back({r.ref.index, it->second, load(name, paths[it->second])});
  };
  if (c.kind == Kind::rotate) {
    LoraCommand back;
    back.kind = Kind::rotate;
    back.name = roll.before_standard;
    undo.push_back({r.ref.index, roll.id, back});
    rotated = roll.id;
    standard = r.standard = c.name;
    return;
  }
  if (!ack.evicted.empty()) {
    reload(ack.evicted);
    r.drop(ack.evicted);
  }
  if (c.kind == Kind::unload) {
    reload(c.name);
    r.drop(c.name);
    if (registry.erase(c.name) != 0) ++version;
    return;
  }
  if (r.adapters.count(c.name) != 0) {
    reload(c.name);
  } else {
    LoraCommand unload;
    unload.kind = Kind::unload;
    unload.name = c.name;
    undo.push_back({r.ref.index, roll.id, unload});
  }
  r.adapters[c.name] = roll.as;
  paths[roll.as] = roll.path;
  if (Loaded& entry = registry[c.name]; entry.id != roll.as) {
    LoraCommand again = c.kind == Kind::promote ? load(c.name, roll.path) : c;
    again.replica.clear();
    entry = {roll.as, ++version, again};
  }
}

void DispatcherCore::State::answered(Roll& roll, const LoraAnswer& m) {
  Replica& r = replicas[*roll.at];
  roll.at.reset();
  if (roll.undoing) {
    const LoraCommand& c = roll.undo_command;
    if (m.error.code != ErrorCode::none) return;  // as it is: what it has is in its own books
    if (loads(c.kind)) r.adapters[c.name] = m.id;
    if (c.kind == Kind::unload) r.drop(c.name);
    if (c.kind == Kind::rotate) r.standard = c.name;
    if (!m.ack.evicted.empty()) r.drop(m.ack.evicted);
    for (LoraOutcome& o : roll.outcomes)
      if (o.replica.index == r.ref.index) o.rolled_back = true;
    return;
  }
  LoraOutcome& o = roll.outcome_of(r);
  o.error = m.error;
  o.adapter = m.ack.adapter;
  o.paused_ns = m.ack.paused_ns;
  if (m.error.code != ErrorCode::none) {
    if (roll.error.code == ErrorCode::none) {
      roll.error = Error{m.error.code, r.name + ": " + m.error.what};
      if (roll.ack.name.empty()) roll.ack = m.ack;
    }
    return;
  }
  if (roll.command.kind == Kind::list) {
    o.adapters = m.ack.adapters;
    if (roll.ack.adapters.empty()) roll.ack = m.ack;
    return;
  }
  roll.ack = m.ack;
  did(r, roll, m.ack, roll.undo);
}

void DispatcherCore::on(const LoraAnswer& m, TimeNs now, DispatcherOutbox& out) {
  State& s = *s_;
  if (s.lone) return out.push(m);
  State::Replica* r = s.current(m.replica);
  if (r == nullptr) return ++s.stats.late, void();
  const auto its = [&](const State::Roll& roll) { return roll.at && *roll.at == m.replica.index && roll.sent == m.id; };
  if (r->state == ReplicaState::starting) {
    if (r->replaying != m.id) return ++s.stats.late, void();
    r->replaying = 0;
    if (!m.ack.evicted.empty()) r->drop(m.ack.evicted);
    if (m.error.code != ErrorCode::none)
      r->error = m.error;
    else if (!r->replaying_name.empty())
      r->adapters[r->replaying_name] = m.id;
    s.replay(*r, now, out);
  } else if (!s.rolls.empty() && its(s.rolls.front())) {
    s.answered(s.rolls.front(), m);
  } else if (const auto it = std::find_if(s.lists.begin(), s.lists.end(), its); it != s.lists.end()) {
    s.answered(*it, m);
  } else {
    ++s.stats.late;
  }
  s.pump(now, out);
}

void DispatcherCore::on(const AdapterFetched& m, TimeNs now, DispatcherOutbox& out) {
  State& s = *s_;
  if (s.current(m.replica) == nullptr || s.rolls.empty()) return ++s.stats.late, void();
  State::Roll& roll = s.rolls.front();
  if (roll.id != m.id || !roll.at || !roll.source || roll.image) return ++s.stats.late, void();
  const std::string& adapter = roll.command.adapter.empty() ? roll.command.name : roll.command.adapter;
  const auto known = s.replicas[*roll.at].adapters.find(adapter);
  if (known != s.replicas[*roll.at].adapters.end()) {
    roll.path = s.paths[known->second];
    if (adapter == roll.command.name) roll.as = known->second;  // the same on both
  }
  roll.at.reset();
  roll.image = m.image;
  if (m.error.code != ErrorCode::none)
    roll.error = m.error;
  else if (!roll.image)
    roll.error = Error{ErrorCode::internal, "the replica gave no adapter; please report this"};
  s.pump(now, out);
}

void DispatcherCore::on(const LoraBound& m, TimeNs, DispatcherOutbox&) {
  State& s = *s_;
  const auto it = s.requests.find(m.request.id.generation);
  if (it == s.requests.end() || it->second.id != m.request.id || it->second.attempt != m.request.attempt || s.current(m.replica) == nullptr)
    return ++s.stats.late, void();
  // What its tokens come from stays so, also where a replica that took it over did not have that.
  if (!it->second.output.empty() && it->second.command) return;
  it->second.command = m.command;
}

// The next adapter that the others have and it has not; with none left it is up.
void DispatcherCore::State::replay(Replica& r, TimeNs now, DispatcherOutbox& out) {
  const Loaded* next = nullptr;
  for (const auto& [name, entry] : registry)
    if (entry.version > r.replayed && (next == nullptr || entry.version < next->version)) next = &entry;
  if (next != nullptr) {
    r.replayed = next->version;
    r.replaying = next->id;
    r.replaying_name = next->command.name;
    ++stats.replayed;
    out.push(LoraSubmit{{}, next->id, next->command, r.ref, {}});
    return;
  }
  for (const auto& [name, id] : r.adapters) {
    if (registry.count(name) != 0) continue;
    LoraCommand unload;  // it went meanwhile
    unload.kind = Kind::unload;
    unload.name = name;
    r.replaying = id;
    r.replaying_name.clear();
    out.push(LoraSubmit{{}, id, unload, r.ref, {}});
    r.drop(std::string(name));
    return;
  }
  if (r.standard != standard) {
    LoraCommand rotate;
    rotate.kind = Kind::rotate;
    rotate.name = r.standard = standard;
    r.replaying = rotated;
    r.replaying_name.clear();
    out.push(LoraSubmit{{}, rotated, rotate, r.ref, {}});
    return;
  }
  go_up(r, now);
}

void DispatcherCore::State::lost_in_roll(const Replica& r) {
  const auto give_up = [&](Roll& roll) {
    if (!roll.at || *roll.at != r.ref.index) return;
    roll.at.reset();
    const Error lost{ErrorCode::unavailable, r.name + " was lost: " + r.error.what};
    if (roll.source && !roll.image) {
      roll.error = lost;
    } else if (!roll.undoing) {
      roll.outcome_of(r).error = lost;
    }
  };
  if (!rolls.empty()) give_up(rolls.front());
  // It may be back before the command is done, and has nothing of it then.
  if (!rolls.empty() && rolls.front().begun && !rolls.front().undoing) rolls.front().covered[r.ref.index] = false;
  for (Roll& list : lists) give_up(list);
}

}  // namespace troupe::actors
