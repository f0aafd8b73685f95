#include "actors/dispatcher/core.h"

#include <fmt/format.h>

#include "actors/dispatcher/state.h"
#include "actors/scheduler/held_text.h"

namespace troupe::actors {
namespace {

// How long a client that was refused for load should wait: about the time in which some request ends, within these.
constexpr TimeNs kShortestWait = 100'000'000;
constexpr TimeNs kLongestWait = 60'000'000'000;

}  // namespace

DispatcherCore::State::State(const DispatcherConfig& c, const ModelInfo& m)
    : config(c),
      model(m),
      lone(c.replicas.empty()),
      placement(c.placement, std::max<std::uint32_t>(1, static_cast<std::uint32_t>(c.replicas.size())), m.block_size) {
  const auto add = [&](const std::string& name, std::uint32_t weight, bool remote) {
    SupervisionConfig supervision = c.supervision;
    if (remote) supervision = for_remote(supervision);
    Replica r(supervision);
    r.ref = {static_cast<std::uint32_t>(replicas.size()), 1};
    r.name = name;
    r.weight = std::max(1u, weight);
    replicas.push_back(std::move(r));
  };
  for (const ReplicaSetup& r : c.replicas) add(r.name, r.weight, r.remote);
  if (!lone) return;
  add("", 1, false);
  replicas[0].state = ReplicaState::up;
}

void DispatcherCore::State::keep_pace(TimeNs now, std::size_t n) {
  pace += ((now - last_end) / static_cast<TimeNs>(n) - pace) / 4;
  last_end = now;
}

// Nothing has ended for longer than the pace says: then it is out of date.
TimeNs DispatcherCore::State::retry_after(TimeNs now) const {
  return std::clamp(std::max(pace, now - last_end), kShortestWait, kLongestWait);
}

void DispatcherCore::State::forget_ended(std::uint64_t client) {
  if (ended_set.erase(client) == 0) return;
  ended.erase(std::find(ended.begin(), ended.end(), client));
}

void DispatcherCore::State::remember_ended(std::uint64_t client) {
  forget_ended(client);
  ended.push_back(client);
  ended_set.insert(client);
  if (ended.size() > config.max_live) {
    ended_set.erase(ended.front());
    ended.pop_front();
  }
}

DispatcherCore::DispatcherCore(const DispatcherConfig& config, const ModelInfo& model) : s_(new State(config, model)) {}
DispatcherCore::~DispatcherCore() = default;

SubmitReply DispatcherCore::State::submit(const Submit& m, TimeNs now, DispatcherOutbox& out) {
  const auto refuse = [](Error error, TimeNs wait = 0) { return SubmitReply{{}, {}, std::move(error), wait}; };
  if (draining) return refuse(Error{ErrorCode::closed, "the runtime is draining and takes no new requests"});
  if (!m.request) return refuse(Error{ErrorCode::bad_request, "the submission holds no request"});
  const Request& request = *m.request;
  if (Error e = validate(request, model); e.code != ErrorCode::none) return refuse(std::move(e));
  if (live.count(request.client) != 0) {
    return refuse(Error{ErrorCode::bad_request,
                        fmt::format("client id {} has a live request; wait for its end, cancel it, or use another id", request.client)});
  }
  if (requests.size() >= config.max_live) {
    return refuse(Error{ErrorCode::overloaded, fmt::format("{} requests are live, which is the limit; try again later", requests.size())},
                  retry_after(now));
  }
  const auto takes = [](const Replica& r) { return r.state == ReplicaState::up || r.comes(); };
  if (std::none_of(replicas.begin(), replicas.end(), takes)) {
    ++stats.unavailable;
    return refuse(
        Error{ErrorCode::unavailable, "no replica takes requests, and none is about to: undrain one, or start the runtime again"});
  }
  const RequestId id{request.client, ++generation};
  forget_ended(request.client);
  if (live.empty()) last_end = now;
  live.emplace(request.client, id.generation);
  Entry& e = requests[id.generation];
  e.id = id;
  e.request = m.request;
  e.seed = request.sampling.seed ? *request.sampling.seed : m.drawn_seed;
  e.submitted = now;
  if (request.deadline) e.deadline = now + *request.deadline;
  if (!lone) {
    e.after = concerns(request);
    e.prefix = placement.prefix_of(request);
  }
  if (!place(e, now, out)) {
    ++stats.queued;
    queue.push_back(id.generation);
  }
  return SubmitReply{{}, id, {}, 0};
}

void DispatcherCore::on(const Submit& m, TimeNs now, DispatcherOutbox& out) {
  SubmitReply reply = s_->submit(m, now, out);
  out.push(std::move(reply));
  s_->pump(now, out);
}

void DispatcherCore::State::forget(std::map<std::uint64_t, Entry>::iterator it) {
  Entry& e = it->second;
  if (e.where == Entry::Where::placed || e.where == Entry::Where::ending) leave(e);
  if (e.where == Entry::Where::reclaiming) --reclaiming;
  if (e.where == Entry::Where::queued) {
    const auto at = std::find(queue.begin(), queue.end(), it->first);
    if (at != queue.end()) queue.erase(at);
  }
  free_client(e.id);
  requests.erase(it);
}

void DispatcherCore::State::free_client(const RequestId& id) {
  if (displaced.erase({id.client, id.generation}) != 0) return;
  const auto it = live.find(id.client);
  if (it == live.end() || it->second != id.generation) return;
  // The newest of those that the client had before, and that live again, has its id back.
  const auto after = displaced.upper_bound({id.client, UINT64_MAX});
  if (after != displaced.begin() && std::prev(after)->first == id.client) {
    it->second = std::prev(after)->second;
    displaced.erase(std::prev(after));
    return;
  }
  live.erase(it);
  remember_ended(id.client);
}

void DispatcherCore::State::take_client_back(const RequestId& id) {
  const auto [it, free] = live.try_emplace(id.client, id.generation);
  if (free) return forget_ended(id.client);
  const std::uint64_t older = std::min(it->second, id.generation), newer = std::max(it->second, id.generation);
  displaced.emplace(id.client, older);
  it->second = newer;
}

void DispatcherCore::State::end(Entry& e, FinishReason reason, Error error) {
  Finish& f = finishes.emplace_back();
  f.request = e.id;
  f.reason = reason;
  f.usage = {static_cast<std::uint32_t>(e.request->prompt.size()), static_cast<std::uint32_t>(e.output.size()), 0};
  f.seed = e.seed;
  f.text_begin = static_cast<std::uint32_t>(finish_text.size());
  finish_text += held_text(model, *e.request, e.output);
  f.text_size = static_cast<std::uint32_t>(finish_text.size()) - f.text_begin;
  f.error = std::move(error);
  f.attempt = e.attempt;
  f.other_arithmetic = e.other_arithmetic;
  ++stats.ended_here;
}

void DispatcherCore::State::answer_cancels(const Entry& e, CancelOutcome outcome, DispatcherOutbox& out) {
  for (std::uint32_t i = 0; i < e.cancels; ++i) {
    const bool first = i == 0 && !e.cancelled;
    out.push(CancelReply{{}, e.id, first ? outcome : CancelOutcome::already_finished, static_cast<std::uint32_t>(e.output.size()), {}});
  }
}

void DispatcherCore::on(const Cancel& m, TimeNs now, DispatcherOutbox& out) {
  State& s = *s_;
  const auto it = s.live.find(m.client);
  if (it == s.live.end()) {
    const bool known = s.ended_set.count(m.client) != 0;
    out.push(CancelReply{{}, RequestId{m.client, 0}, known ? CancelOutcome::already_finished : CancelOutcome::not_found, 0});
    return;
  }
  const auto at = s.requests.find(it->second);
  State::Entry& e = at->second;
  if (e.where == State::Entry::Where::placed) {
    const ReplicaRef to = s.replicas[e.replica].ref;
    if (!s.lone) s.cancels.emplace_back(e.id, to);
    out.push(CancelRequest{{}, e.id, to});
    return;
  }
  ++e.cancels;
  if (e.where == State::Entry::Where::reclaiming) return;
  s.end(e, FinishReason::cancelled);
  s.answer_cancels(e, e.output.empty() ? CancelOutcome::cancelled_waiting : CancelOutcome::cancelled_running, out);
  s.forget(at);
  s.pump(now, out);
}

void DispatcherCore::on(const CancelReply& m, TimeNs, DispatcherOutbox& out) {
  State& s = *s_;
  if (!s.lone) {
    const auto it = std::find(s.cancels.begin(), s.cancels.end(), std::pair{m.id, m.replica});
    if (it == s.cancels.end()) return ++s.stats.late, void();
    s.cancels.erase(it);
    const auto at = s.requests.find(m.id.generation);
    const bool cancelled = m.outcome == CancelOutcome::cancelled_waiting || m.outcome == CancelOutcome::cancelled_running;
    if (at != s.requests.end() && cancelled) at->second.cancelled = true;
  }
  out.push(m);
}

void DispatcherCore::on(const Ended& m, TimeNs now, DispatcherOutbox& out) {
  State& s = *s_;
  if (s.current(m.replica) == nullptr) return s.stats.late += m.requests.size(), void();
  if (s.model.max_loras > 0) out.push(m);
  std::size_t ended = 0;
  for (const auto& [id, attempt] : m.requests) {
    const auto it = s.requests.find(id.generation);
    if (it == s.requests.end() || it->second.id != id || it->second.attempt != attempt) continue;
    if (!s.lone) {
      if (it->second.where != State::Entry::Where::placed) continue;
      s.leave(it->second);
      it->second.where = State::Entry::Where::ending;
      ++s.replicas[it->second.replica].ending;
      s.free_client(id);
      ++ended;
      continue;
    }
    s.forget(it);
    ++ended;
  }
  if (ended > 0) s.keep_pace(now, ended);
  s.pump(now, out);
}

void DispatcherCore::on(const Delivered& m, TimeNs now, DispatcherOutbox& out) {
  State& s = *s_;
  std::size_t ended = 0;
  for (const auto& [id, attempt] : m.requests) {
    const auto it = s.requests.find(id.generation);
    if (it == s.requests.end() || it->second.id != id || it->second.attempt != attempt) continue;
    ended += it->second.where == State::Entry::Where::ending ? 0 : 1;
    s.forget(it);
  }
  if (ended > 0) s.keep_pace(now, ended);
  s.pump(now, out);
}

void DispatcherCore::on(const Reclaimed& m, TimeNs now, DispatcherOutbox& out) {
  State& s = *s_;
  std::vector<std::uint64_t> again;
  std::size_t ended = 0;
  for (const ReclaimedRequest& r : m.requests) {
    const auto it = s.requests.find(r.id.generation);
    if (it == s.requests.end() || it->second.attempt != r.attempt || it->second.where != State::Entry::Where::reclaiming) continue;
    State::Entry& e = it->second;
    e.moves = r.output.size() > e.output.size() ? 1 : e.moves + 1;
    e.output = r.output;
    if (r.ended) {
      ++s.stats.ended_when_reclaimed;
      s.answer_cancels(e, CancelOutcome::already_finished, out);
    } else if (e.cancels > 0 || e.cancelled) {
      s.end(e, FinishReason::cancelled);
      s.answer_cancels(e, e.output.empty() ? CancelOutcome::cancelled_waiting : CancelOutcome::cancelled_running, out);
    } else if (e.deadline != 0 && e.deadline <= now) {
      s.end(e, FinishReason::deadline);
    } else if (s.model.max_loras > 0 && !e.output.empty() && !e.command) {
      s.end(e, FinishReason::error,
            Error{ErrorCode::adapter_gone, "the replica was lost before it said which adapter the request is bound to"});
    } else if (e.moves > s.config.max_moves) {
      s.end(e, FinishReason::error,
            Error{e.error.code,
                  fmt::format("{} replicas in a row were lost under the request, which got no token: {}", e.moves, e.error.what)});
    } else {
      --s.reclaiming;
      e.where = State::Entry::Where::queued;
      again.push_back(it->first);
      continue;
    }
    s.forget(it);
    ++ended;
  }
  if (ended > 0) s.keep_pace(now, ended);
  s.queue.insert(s.queue.begin(), again.begin(), again.end());
  s.pump(now, out);
}

void DispatcherCore::on(const Drain& m, TimeNs now, DispatcherOutbox& out) {
  State& s = *s_;
  if (s.drained) {
    out.push(Drained{});
  } else if (!std::exchange(s.draining, true)) {
    if (s.lone)
      out.push(m);
    else
      s.pump(now, out);
  }
}

// Of several replicas none is told before the last request has ended: until then one may have to take it over.
void DispatcherCore::State::drain_on(DispatcherOutbox& out) {
  if (lone || !draining || drained || !requests.empty() || !rolls.empty() || !lists.empty()) return;
  if (!std::exchange(drain_sent, true))
    for (const Replica& r : replicas)
      if (r.serves()) out.push(Drain{{}, r.ref});
  if (std::any_of(replicas.begin(), replicas.end(), [](const Replica& r) { return r.serves() && !r.drained; })) return;
  drained = true;
  out.push(Drained{});
}

void DispatcherCore::on(const Drained& m, TimeNs now, DispatcherOutbox& out) {
  State& s = *s_;
  if (s.lone) {
    s.drained = true;
    return out.push(m);
  }
  State::Replica* r = s.current(m.replica);
  if (r == nullptr) return ++s.stats.late, void();
  r->drained = true;
  s.pump(now, out);
}

std::uint32_t DispatcherCore::live() const { return static_cast<std::uint32_t>(s_->requests.size()); }
std::uint32_t DispatcherCore::waiting() const { return static_cast<std::uint32_t>(s_->queue.size()) + s_->reclaiming; }
const DispatcherStats& DispatcherCore::stats() const { return s_->stats; }

}  // namespace troupe::actors
