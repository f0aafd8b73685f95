#include "actors/link/host_core.h"

#include <fmt/format.h>

#include <utility>

#include "actors/dispatcher/core.h"

namespace troupe::actors::link {

Welcome HostCore::welcome(const HostConfig& config) {
  Welcome out{config.node, config.replicas, config.model, config.tokens};
  out.model.tokens = {};
  return out;
}

void HostCore::on(std::uint32_t connection, LinkMessage&& message, TimeNs now, HostOutbox& out) {
  if (const auto* hello = std::get_if<Hello>(&message)) return greet(connection, *hello, now, out);
  if (!holder_ || holder_->connection != connection) return;
  holder_->live.heard(now);
  std::visit(
      [&]<class M>(M& m) {
        if constexpr (std::is_same_v<M, Admit>) {
          admit(std::move(m), now, out);
        } else if constexpr (std::is_same_v<M, Drain>) {
          holder_->draining = true;
          settle(now, out);
        } else if constexpr (std::is_same_v<M, Refused>) {
          out.push(Disconnect{connection, m.error});
          release(out);
        } else if constexpr (kToNode<M> && !std::is_same_v<M, Heartbeat> && !std::is_same_v<M, Hello>) {
          if (!holder_->welcomed || m.replica != holder_->hello.ref) return;
          m.replica = config_.ref;
          if (refuses(m, now, out)) return;
          ++owed_;
          out.push(std::move(m));
        }
      },
      message);
}

void HostCore::greet(std::uint32_t connection, const Hello& m, TimeNs now, HostOutbox& out) {
  if (holder_ && holder_->connection == connection) {
    out.push(Disconnect{connection, {ErrorCode::bad_file, "it said hello twice"}});
    return release(out);
  }
  if (m.silence > config_.longest_silence) {
    return refuse(connection, {ErrorCode::bad_request, fmt::format("a silence of {} ms is too long for this node", m.silence / 1'000'000)},
                  out);
  }
  if (holder_) {
    const Hello& has = holder_->hello;
    if (has.owner != m.owner) {
      return refuse(connection,
                    {ErrorCode::overloaded, "the replica belongs to another runtime, whose link lives; stop that one, or use another node"},
                    out);
    }
    if (m.ref.incarnation <= has.ref.incarnation) {
      return refuse(connection, {ErrorCode::closed, "the same runtime came again since, with a higher incarnation"}, out);
    }
    out.push(Disconnect{holder_->connection, {ErrorCode::closed, "the runtime came again by another connection"}});
    release(out);
  }
  Holder holder;
  holder.connection = connection;
  holder.hello = m;
  holder.live.start(m.heartbeat, m.silence, now);
  holder_ = holder;
  out.push(SetTimer{now + m.heartbeat});
  if (replica_ == Replica::down) start(out);
  settle(now, out);
}

// Without room for adapters there is nobody who could answer.
template <class M>
bool HostCore::refuses(const M& m, TimeNs now, HostOutbox& out) {
  if constexpr (std::is_same_v<M, LoraSubmit> || std::is_same_v<M, FetchAdapter>) {
    if (config_.model.max_loras > 0) return false;
    std::conditional_t<std::is_same_v<M, LoraSubmit>, LoraAnswer, AdapterFetched> answer;
    answer.id = m.id;
    answer.replica = config_.ref;
    answer.error = {ErrorCode::unsupported, "this node has no room for adapters: start it with --max-loras above 0"};
    say(answer, now, out);
    return true;
  }
  return false;
}

Error HostCore::fault(const Admit& m) const {
  if (live_requests_.count(m.id) != 0) return {ErrorCode::bad_request, label(m.id) + " was sent twice"};
  if (live_requests_.size() >= config_.max_live) {
    return {ErrorCode::overloaded,
            fmt::format("this node takes {} requests at a time; start it with a larger --max-live", config_.max_live)};
  }
  const ModelInfo& model = config_.model;
  bool known = m.output.size() < model.context_length && m.adapter.slot <= model.max_loras;
  for (const Token t : m.output) known = known && t < model.vocab_size;
  if (!known) return {ErrorCode::bad_request, label(m.id) + " has tokens or an adapter that this model does not have"};
  return validate(*m.request, model);
}

void HostCore::admit(Admit&& m, TimeNs, HostOutbox& out) {
  if (!holder_->welcomed || m.replica != holder_->hello.ref) return;
  if (Error wrong = fault(m); wrong.code != ErrorCode::none) {
    const std::uint32_t connection = holder_->connection;
    release(out);
    return refuse(connection, std::move(wrong), out);
  }
  live_requests_.emplace(m.id, m.attempt);
  m.replica = config_.ref;
  out.push(std::move(m));
}

void HostCore::on(const Disconnected& m, TimeNs, HostOutbox& out) {
  if (holder_ && holder_->connection == m.connection) release(out);
}

void HostCore::on(const Tick&, TimeNs now, HostOutbox& out) {
  if (!holder_) return;
  if (holder_->live.gone(now)) {
    out.push(Disconnect{holder_->connection, {ErrorCode::timed_out, "nothing was heard of the runtime"}});
    return release(out);
  }
  if (holder_->live.owes(now)) {
    holder_->live.sent(now);
    out.push(Transmit{holder_->connection, Heartbeat{}});
  }
  out.push(SetTimer{now + holder_->live.heartbeat()});
}

void HostCore::on(const Ended& m, TimeNs now, HostOutbox& out) {
  for (const Placed& p : m.requests) live_requests_.erase(p.id);
  if (config_.model.max_loras > 0) out.push(m);  // as a dispatcher does
  say(m, now, out);
  settle(now, out);
}

void HostCore::on(const ReplicaLost& m, TimeNs now, HostOutbox& out) {
  if (replica_ != Replica::up || m.replica != config_.ref) return;
  say(m, now, out);
  live_requests_.clear();
  owed_ = 0;
  if (holder_) holder_->welcomed = false;
  replica_ = Replica::stopping;
  out.push(StopReplica{{}, config_.ref});
}

void HostCore::start(HostOutbox& out) {
  replica_ = Replica::starting;
  ++config_.ref.incarnation;
  out.push(StartReplica{{}, config_.ref});
}

void HostCore::on(const ReplicaUp& m, TimeNs now, HostOutbox& out) {
  if (replica_ != Replica::starting || m.replica != config_.ref) return;
  replica_ = Replica::up;
  settle(now, out);
}

void HostCore::on(const ReplicaDown& m, TimeNs, HostOutbox& out) {
  if (m.replica != config_.ref) return;
  if (replica_ == Replica::stopping) return start(out);
  if (replica_ != Replica::starting) return;
  replica_ = Replica::down;
  if (!holder_) return;
  const std::uint32_t connection = holder_->connection;
  holder_.reset();
  refuse(connection, {ErrorCode::unavailable, "the replica could not be started again: " + m.error.what}, out);
}

void HostCore::refuse(std::uint32_t connection, Error why, HostOutbox& out) {
  out.push(Transmit{connection, Refused{why}});
  out.push(Disconnect{connection, std::move(why)});
}

// The holder is gone; what it had asked for ends.
void HostCore::release(HostOutbox& out) {
  holder_.reset();
  if (replica_ != Replica::up) return;
  for (const auto& [id, attempt] : live_requests_) out.push(CancelRequest{{}, id, config_.ref});
  owed_ += live_requests_.size();
}

// When nothing is left of those who had it before, the replica is the holder's; and when nothing is left of the holder's, it is drained.
void HostCore::settle(TimeNs now, HostOutbox& out) {
  if (!holder_ || replica_ != Replica::up) return;
  if (!holder_->welcomed) {
    if (!live_requests_.empty() || owed_ > 0) return;
    holder_->welcomed = true;
    return say(welcome(config_), now, out);
  }
  if (holder_->draining && live_requests_.empty()) say(Drained{{}, config_.ref}, now, out);
}

}  // namespace troupe::actors::link
