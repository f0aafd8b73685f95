// The replicas: where requests go, what becomes of them when one is lost, and when it is started again.
#include <fmt/format.h>

#include "actors/dispatcher/state.h"

namespace troupe::actors {

DispatcherCore::State::Replica* DispatcherCore::State::current(const ReplicaRef& ref) {
  if (lone) return &replicas[0];
  if (ref.index >= replicas.size()) return nullptr;
  Replica& r = replicas[ref.index];
  return r.ref == ref && (r.serves() || r.state == ReplicaState::starting) ? &r : nullptr;
}

bool DispatcherCore::State::any_comes() const {
  return std::any_of(replicas.begin(), replicas.end(), [](const Replica& r) { return r.comes(); });
}

// Whether what comes before the request has reached the replica.
bool DispatcherCore::State::eligible(const Replica& r, const Entry& e) const {
  const bool up = r.state == ReplicaState::up ||
                  (config.fault == DispatcherFault::route_to_fenced && (r.state == ReplicaState::lost || r.state == ReplicaState::waiting));
  return up && r.lora_seen >= e.after;
}

bool DispatcherCore::State::place(Entry& e, TimeNs now, DispatcherOutbox& out) {
  std::vector<Placement::Candidate> candidates;
  const auto add = [&](const Replica& r) {
    const std::uint64_t kv = std::uint64_t{r.report.facts.total_blocks} * model.block_size;
    candidates.push_back({r.ref.index, r.outstanding, r.weight, kv});
  };
  if (lone) {
    add(replicas[0]);
  } else {
    // Those that have its adapter; if there is none, whoever gets it says that it is unknown, or gone.
    const bool bound = !e.output.empty() && e.command.value_or(0) != 0;
    const auto has = [&](const Replica& r) {
      if (bound) return std::any_of(r.adapters.begin(), r.adapters.end(), [&](const auto& a) { return a.second == *e.command; });
      return e.request->adapter.empty() || r.adapters.count(e.request->adapter) != 0;
    };
    for (const Replica& r : replicas)
      if (eligible(r, e) && has(r)) add(r);
    if (candidates.empty()) {
      const bool known = bound ? std::any_of(registry.begin(), registry.end(), [&](const auto& a) { return a.second.id == *e.command; })
                               : registry.count(e.request->adapter) != 0;
      if (known && any_comes()) return false;  // it will be given the adapter first
      for (const Replica& r : replicas)
        if (eligible(r, e)) add(r);
    }
    if (candidates.empty()) return false;
  }
  const std::uint64_t context = model.context_length > e.request->prompt.size() ? model.context_length - e.request->prompt.size() : 0;
  e.cost = e.request->prompt.size() + std::min<std::uint64_t>(e.request->stop.max_tokens, context);
  Replica& r = replicas[lone ? 0 : placement.choose(candidates, e.id.client, e.cost, e.prefix)];
  if (!lone) placement.placed(r.ref.index, e.prefix);
  ++r.live;
  r.outstanding += e.cost;
  e.where = Entry::Where::placed;
  e.replica = r.ref.index;
  if (e.attempt > 0) {
    ++stats.moved;
    stats.moved_with_output += e.output.empty() ? 0 : 1;
  }
  if (!e.output.empty() && (e.arithmetic != r.arithmetic || r.arithmetic.ends_with(kBatchDependent))) e.other_arithmetic = true;
  e.arithmetic = r.arithmetic;
  Admit admit{{}, e.id, e.request, e.seed};
  admit.replica = r.ref;
  admit.attempt = e.attempt;
  admit.waited = now - e.submitted;
  admit.other_arithmetic = e.other_arithmetic;
  if (config.fault != DispatcherFault::resend_all) admit.output = e.output;
  if (!e.output.empty()) admit.adapter_command = e.command.value_or(0);
  out.push(std::move(admit));
  return true;
}

void DispatcherCore::State::leave(Entry& e) {
  Replica& r = replicas[e.replica];
  if (e.where == Entry::Where::ending) return --r.ending, void();
  --r.live;
  r.outstanding -= e.cost;
}

// It has something to do, and is watched: nobody is while there is nothing to wait for.
bool DispatcherCore::State::busy(const Replica& r) const {
  const auto asked = [&](const Roll& roll) { return roll.at && *roll.at == r.ref.index; };
  return r.serves() &&
         (r.live + r.ending > 0 || (!rolls.empty() && asked(rolls.front())) || std::any_of(lists.begin(), lists.end(), asked));
}

// Fenced at once; then delivery is asked what the clients of its requests have.
void DispatcherCore::State::lose(Replica& r, Error error, TimeNs now, DispatcherOutbox& out) {
  ++stats.lost;
  r.state = ReplicaState::lost;
  r.error = std::move(error);
  r.since = now;
  Reclaim reclaim;
  for (auto& [generation, e] : requests) {
    if ((e.where != Entry::Where::placed && e.where != Entry::Where::ending) || e.replica != r.ref.index) continue;
    leave(e);
    if (e.where == Entry::Where::ending) take_client_back(e.id);
    e.where = Entry::Where::reclaiming;
    e.error = r.error;
    ++reclaiming;
    reclaim.requests.push_back({e.id, ++e.attempt});
  }
  for (auto it = cancels.begin(); it != cancels.end();) {
    if (it->second != r.ref) {
      ++it;
      continue;
    }
    const auto at = requests.find(it->first.generation);
    if (at != requests.end())
      ++at->second.cancels;
    else
      out.push(CancelReply{{}, it->first, CancelOutcome::already_finished, 0, {}});
    it = cancels.erase(it);
  }
  if (!reclaim.requests.empty()) out.push(std::move(reclaim));
  out.push(StopReplica{{}, r.ref});
  placement.forget(r.ref.index);
  r.adapters.clear();
  r.standard.clear();
  r.report = {};
  r.asked = 0;
  r.watched = false;
  r.replaying = 0;
  r.drained = false;
  lost_in_roll(r);
  settle_drains(r, out);
}

void DispatcherCore::State::schedule(Replica& r, TimeNs now) {
  const auto at = r.restarts.next(now);
  r.state = at ? ReplicaState::waiting : ReplicaState::failed;
  r.since = at.value_or(now);
  stats.given_up += at ? 0 : 1;
}

void DispatcherCore::State::go_up(Replica& r, TimeNs now) {
  r.state = !r.drain ? ReplicaState::up : r.live > 0 ? ReplicaState::draining : ReplicaState::drained;
  r.progress = now;
  // What is done already it was given; a command that runs comes to it yet, unless it is of no concern to it.
  r.lora_seen = passed;
  if (!rolls.empty() && rolls.front().begun && rolls.front().covered[r.ref.index]) r.lora_seen = rolls.front().id;
}

// Somebody asked for it to be drained, and it has nothing left.
void DispatcherCore::State::settle_drains(Replica& r, DispatcherOutbox& out) {
  if (r.live > 0) return;
  if (r.state == ReplicaState::draining) r.state = ReplicaState::drained;
  for (const std::uint64_t id : std::exchange(r.drains, {})) out.push(ReplicaAnswer{{}, id, r.ref.index, {}});
}

void DispatcherCore::State::watch(TimeNs now, DispatcherOutbox& out) {
  const SupervisionConfig& c = config.supervision;
  for (Replica& r : replicas) {
    if (r.state == ReplicaState::starting && r.since == 0) r.since = now;  // the first lives began before anybody said the time
    if (r.state == ReplicaState::waiting && r.since <= now) {
      ++r.ref.incarnation;
      r.state = ReplicaState::starting;
      r.since = now;
      r.settled = 0;
      r.replayed = 0;
      ++stats.started;
      out.push(StartReplica{{}, r.ref});
    } else if (r.state == ReplicaState::starting && r.since + c.start_timeout <= now) {
      lose(r, Error{ErrorCode::timed_out, "it was not up within the time for a start"}, now, out);
    } else if (r.watched && busy(r)) {
      if (r.asked != 0 && r.asked + c.report_timeout <= now) {
        ++stats.silent;
        lose(r, Error{ErrorCode::timed_out, "it has not answered for " + std::to_string((now - r.asked) / 1'000'000) + " ms"}, now, out);
      } else if (r.progress + c.progress_timeout <= now) {
        ++stats.stuck;
        lose(r,
             Error{ErrorCode::timed_out,
                   "it has requests, and no step of it has settled for " + std::to_string((now - r.progress) / 1'000'000) + " ms"},
             now, out);
      } else if (r.asked == 0 && r.next_ask <= now) {
        r.asked = now;
        out.push(AskReport{{}, r.ref});
      }
    }
  }
}

void DispatcherCore::State::pump(TimeNs now, DispatcherOutbox& out) {
  if (!lone) {
    watch(now, out);
    roll_on(now, out);
    for (auto it = queue.begin(); it != queue.end();) {
      Entry& e = requests.at(*it);
      it = place(e, now, out) ? queue.erase(it) : it + 1;
    }
    // With none to come back, those that have a deadline wait for somebody to help until then.
    const bool hope =
        any_comes() || std::any_of(replicas.begin(), replicas.end(), [](const Replica& r) { return r.state == ReplicaState::up; });
    for (std::size_t i = 0; i < queue.size();) {
      const auto at = requests.find(queue[i]);
      Entry& e = at->second;
      if (e.deadline != 0 ? e.deadline > now : hope) {
        ++i;
        continue;
      }
      if (e.deadline != 0)
        end(e, FinishReason::deadline);
      else
        end(e, FinishReason::error, Error{ErrorCode::unavailable, "no replica is left, and none is about to come back"});
      forget(at);
      keep_pace(now, 1);
    }
    for (Replica& r : replicas)
      if (r.drain) settle_drains(r, out);
  }
  for (Replica& r : replicas) {
    const bool watched = !lone && busy(r);
    if (watched && !std::exchange(r.watched, watched)) r.progress = now, r.next_ask = now + config.supervision.report_interval, r.asked = 0;
    r.watched = watched;
  }
  if (!finishes.empty()) out.push(EndRequests{{}, std::exchange(finishes, {}), std::exchange(finish_text, {})});
  drain_on(out);
  if (!lone) arm(now, out);
}

// The earliest time at which something is to be done though no message comes.
void DispatcherCore::State::arm(TimeNs, DispatcherOutbox& out) {
  const SupervisionConfig& c = config.supervision;
  TimeNs next = 0;
  const auto earlier = [&](TimeNs at) {
    if (at != 0 && (next == 0 || at < next)) next = at;
  };
  for (const std::uint64_t generation : queue) earlier(requests.at(generation).deadline);
  for (const Replica& r : replicas) {
    if (r.state == ReplicaState::waiting) earlier(r.since);
    if (r.state == ReplicaState::starting) earlier(r.since + c.start_timeout);
    if (!r.watched) continue;
    earlier(r.asked != 0 ? r.asked + c.report_timeout : r.next_ask);
    earlier(r.progress + c.progress_timeout);
  }
  if (next == 0 || (armed != 0 && armed <= next)) return;
  armed = next;
  out.push(SetTimer{next});
}

void DispatcherCore::on(const Tick&, TimeNs now, DispatcherOutbox& out) {
  s_->armed = 0;
  s_->pump(now, out);
}

void DispatcherCore::on(const ReplicaUp& m, TimeNs now, DispatcherOutbox& out) {
  State& s = *s_;
  State::Replica* r = s.current(m.replica);
  if (s.lone || r == nullptr || r->state != ReplicaState::starting) return ++s.stats.late, void();
  r->arithmetic = m.arithmetic_id;
  s.replay(*r, now, out);
  s.pump(now, out);
}

void DispatcherCore::on(const ReplicaDown& m, TimeNs now, DispatcherOutbox& out) {
  State& s = *s_;
  if (s.lone || m.replica.index >= s.replicas.size() || s.replicas[m.replica.index].ref != m.replica) return ++s.stats.late, void();
  State::Replica& r = s.replicas[m.replica.index];
  if (r.serves()) s.lose(r, m.error.code != ErrorCode::none ? m.error : Error{ErrorCode::closed, "it was stopped"}, now, out);
  if (r.state == ReplicaState::starting) r.error = m.error;
  if (r.state == ReplicaState::starting || r.state == ReplicaState::lost) s.schedule(r, now);
  s.pump(now, out);
}

void DispatcherCore::on(const ReplicaLost& m, TimeNs now, DispatcherOutbox& out) {
  State& s = *s_;
  State::Replica* r = s.current(m.replica);
  if (s.lone || r == nullptr) return ++s.stats.late, void();
  s.lose(*r, m.error, now, out);
  s.pump(now, out);
}

void DispatcherCore::on(const ReplicaReport& m, TimeNs now, DispatcherOutbox& out) {
  State& s = *s_;
  State::Replica* r = s.current(m.replica);
  if (s.lone || r == nullptr) return ++s.stats.late, void();
  r->report = m;
  r->report.ctx = {};
  r->asked = 0;
  r->next_ask = now + s.config.supervision.report_interval;
  if (m.settled != r->settled || m.waiting + m.running == 0) r->progress = now;
  r->settled = m.settled;
  s.pump(now, out);
}

void DispatcherCore::on(const DrainReplica& m, TimeNs now, DispatcherOutbox& out) {
  State& s = *s_;
  const auto refuse = [&](ErrorCode code, std::string what) { out.push(ReplicaAnswer{{}, m.id, m.index, Error{code, std::move(what)}}); };
  if (m.index >= s.replicas.size())
    return refuse(ErrorCode::not_found, fmt::format("there is no replica {}; there are {}", m.index, s.replicas.size()));
  if (s.lone) return refuse(ErrorCode::unsupported, "the runtime has one replica only: drain the runtime");
  State::Replica& r = s.replicas[m.index];
  if (r.state == ReplicaState::failed) return refuse(ErrorCode::closed, "the replica was given up; undrain it to have it started again");
  if (r.drains.size() >= s.config.max_drains)
    return refuse(ErrorCode::overloaded, fmt::format("{} wait already for the replica to be drained; it is being drained", r.drains.size()));
  r.drain = true;
  r.drains.push_back(m.id);
  if (r.state == ReplicaState::up) r.state = ReplicaState::draining;
  s.settle_drains(r, out);
  s.pump(now, out);
}

void DispatcherCore::on(const UndrainReplica& m, TimeNs now, DispatcherOutbox& out) {
  State& s = *s_;
  ReplicaAnswer answer{{}, m.id, m.index, {}};
  if (m.index >= s.replicas.size()) {
    answer.error = Error{ErrorCode::not_found, fmt::format("there is no replica {}; there are {}", m.index, s.replicas.size())};
    return out.push(std::move(answer));
  }
  State::Replica& r = s.replicas[m.index];
  r.drain = false;
  for (const std::uint64_t id : std::exchange(r.drains, {}))
    out.push(ReplicaAnswer{{}, id, m.index, Error{ErrorCode::closed, "the replica was undrained before it had drained"}});
  if (r.state == ReplicaState::draining || r.state == ReplicaState::drained) r.state = ReplicaState::up;
  if (r.state == ReplicaState::failed) {
    r.restarts.forgive();
    r.state = ReplicaState::waiting;
    r.since = now;
  }
  out.push(std::move(answer));
  s.pump(now, out);
}

ReplicaStatus DispatcherCore::State::status(const Replica& r) const {
  ReplicaStatus out{r.ref, r.state, r.name};
  out.arithmetic_id = r.arithmetic;
  out.live = r.live;
  out.outstanding = r.outstanding;
  out.report = r.report;
  for (const auto& [name, id] : r.adapters) out.adapters.push_back(name);
  out.tries = r.restarts.tries();
  out.error = r.error;
  return out;
}

std::vector<ReplicaStatus> DispatcherCore::replicas() const {
  std::vector<ReplicaStatus> out;
  for (const State::Replica& r : s_->replicas) out.push_back(s_->status(r));
  return out;
}

void DispatcherCore::on(const AskReplicas& m, TimeNs now, DispatcherOutbox& out) {
  State& s = *s_;
  out.push(ReplicaList{{}, m.id, replicas(), waiting()});
  if (s.lone) return;
  for (State::Replica& r : s.replicas) {
    if (!r.serves() || r.asked != 0) continue;
    r.asked = now;
    out.push(AskReport{{}, r.ref});
  }
  s.pump(now, out);
}

std::string DispatcherCore::check() const {
  const State& s = *s_;
  std::vector<std::uint64_t> outstanding(s.replicas.size(), 0);
  std::vector<std::uint32_t> live(s.replicas.size(), 0), ending(s.replicas.size(), 0);
  std::size_t queued = 0, reclaiming = 0;
  for (const auto& [generation, e] : s.requests) {
    const auto it = s.live.find(e.id.client);
    if (e.where != State::Entry::Where::ending && (it == s.live.end() || it->second < generation))
      return "R5: " + label(e.id) + " is live, and its client id is free";
    if (e.where == State::Entry::Where::queued) {
      ++queued;
      if (std::count(s.queue.begin(), s.queue.end(), generation) != 1) return "R5: " + label(e.id) + " is not in the queue once";
    } else if (e.where == State::Entry::Where::reclaiming) {
      ++reclaiming;
    } else {
      if (!s.replicas[e.replica].serves() && s.config.fault == DispatcherFault::none)
        return "R5: " + label(e.id) + " is placed on " + label(s.replicas[e.replica].ref) + ", which is " +
               name(s.replicas[e.replica].state);
      if (e.where == State::Entry::Where::ending) {
        ++ending[e.replica];
        continue;
      }
      outstanding[e.replica] += e.cost;
      ++live[e.replica];
    }
  }
  if (queued != s.queue.size() || reclaiming != s.reclaiming || s.live.size() > s.requests.size())
    return "R5: a live request is in two places, or in none";
  if (s.requests.size() > s.config.max_live) return "R11: more live requests than the limit";
  for (const State::Replica& r : s.replicas) {
    if (r.live != live[r.ref.index] || r.ending != ending[r.ref.index] || r.outstanding != outstanding[r.ref.index])
      return "R8: " + label(r.ref) + " counts other work than it has";
    if (r.state == ReplicaState::drained && r.live > 0) return "R5: " + label(r.ref) + " is drained, and has requests";
    if (!s.lone && s.busy(r) && (!r.watched || s.armed == 0)) return "R10: " + label(r.ref) + " has requests, and nobody watches it";
    if (r.state == ReplicaState::waiting && s.armed == 0) return "R10: " + label(r.ref) + " waits for its start, and no timer is set";
  }
  return {};
}

}  // namespace troupe::actors
