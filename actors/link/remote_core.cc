#include "actors/link/remote_core.h"

#include <fmt/format.h>

#include <utility>

namespace troupe::actors::link {
namespace {

// What makes two models other ones to their clients. Weights are not compared.
std::string difference(const ModelInfo& ours, std::uint64_t tokens, const Welcome& m) {
  const ModelInfo& theirs = m.model;
  const auto differ = [](const char* what, const auto& a, const auto& b) {
    return fmt::format("its {} is {}, and this runtime's is {}", what, b, a);
  };
  if (ours.name != theirs.name) return differ("model", ours.name, theirs.name);
  if (ours.architecture != theirs.architecture) return differ("architecture", ours.architecture, theirs.architecture);
  if (ours.vocab_size != theirs.vocab_size) return differ("vocabulary's size", ours.vocab_size, theirs.vocab_size);
  if (ours.n_layers != theirs.n_layers) return differ("number of layers", ours.n_layers, theirs.n_layers);
  if (ours.context_length > theirs.context_length) return differ("context length", ours.context_length, theirs.context_length);
  if (ours.max_loras > 0 && theirs.max_loras == 0) return "it has no room for adapters: start it with --max-loras";
  if (ours.eos_ids != theirs.eos_ids || tokens != m.tokens) return "its vocabulary is another one";
  return {};
}

}  // namespace

void RemoteCore::on(const StartReplica& m, TimeNs, RemoteOutbox& out) {
  if (state_ != State::idle) {
    return out.push(ReplicaDown{{}, m.replica, {ErrorCode::internal, config_.name + " was started twice; please report this"}});
  }
  ref_ = m.replica;
  state_ = State::connecting;
  out.push(Connect{++connection_});
}

void RemoteCore::on(const StopReplica& m, TimeNs, RemoteOutbox& out) {
  if (state_ != State::idle && state_ != State::lost) out.push(Disconnect{connection_, {ErrorCode::closed, "this replica was stopped"}});
  state_ = State::idle;
  out.push(ReplicaDown{{}, m.replica, {}});
}

void RemoteCore::on(const Connected& m, TimeNs now, RemoteOutbox& out) {
  if (m.connection != connection_ || state_ != State::connecting) return;
  state_ = State::greeting;
  until_ = now + config_.patience;
  live_.start(config_.heartbeat, config_.silence, now);
  Hello hello;
  hello.owner = config_.owner;
  hello.replica = config_.replica;
  hello.ref = ref_;
  hello.heartbeat = config_.heartbeat;
  hello.silence = config_.silence;
  transmit(hello, now, out);
  out.push(SetTimer{now + config_.heartbeat});
}

void RemoteCore::on(const Disconnected& m, TimeNs, RemoteOutbox& out) {
  if (m.connection != connection_) return;
  lose({ErrorCode::unavailable, fmt::format("the link to {} is gone ({})", config_.name, m.why.what)}, out);
}

void RemoteCore::on(std::uint32_t connection, LinkMessage&& message, TimeNs now, RemoteOutbox& out) {
  if (connection != connection_ || (state_ != State::greeting && state_ != State::up)) return;
  live_.heard(now);
  std::visit(
      [&]<class M>(M& m) {
        if constexpr (std::is_same_v<M, Welcome>) {
          welcome(m, now, out);
        } else if constexpr (std::is_same_v<M, Refused>) {
          const ErrorCode code = m.error.code;
          out.push(Disconnect{connection_, {ErrorCode::closed, "refused"}});
          lose({code, fmt::format("{}: {}", config_.name, m.error.what)}, out);
        } else if constexpr (std::is_same_v<M, ReplicaLost>) {
          if (state_ != State::up) return;
          out.push(Disconnect{connection_, {ErrorCode::closed, "the replica is lost"}});
          lose({m.error.code, fmt::format("{}: {}", config_.name, m.error.what)}, out);
        } else if constexpr (std::is_same_v<M, Deliver>) {
          if (state_ == State::up) out.push(std::move(m));
        } else if constexpr (kFromNode<M> && !std::is_same_v<M, Heartbeat>) {
          m.replica = ref_;
          if (state_ == State::up) out.push(std::move(m));
        }
      },
      message);
}

void RemoteCore::welcome(const Welcome& m, TimeNs, RemoteOutbox& out) {
  if (state_ != State::greeting) return;
  std::string wrong = config_.model ? difference(*config_.model, config_.tokens, m) : "";
  if (!wrong.empty()) {
    out.push(Disconnect{connection_, {ErrorCode::unsupported, wrong}});
    return lose({ErrorCode::unsupported, fmt::format("{} cannot be used: {}", config_.name, wrong)}, out);
  }
  state_ = State::up;
  out.push(ReplicaUp{{}, ref_, m.model.arithmetic_id});
}

void RemoteCore::on(const Tick&, TimeNs now, RemoteOutbox& out) {
  if (state_ != State::greeting && state_ != State::up) return;
  std::string why;
  if (live_.gone(now)) {
    why = fmt::format("nothing was heard of {} for {} ms", config_.name, config_.silence / 1'000'000);
  } else if (state_ == State::greeting && now >= until_) {
    why = fmt::format("{} did not hand the replica over within {} ms", config_.name, config_.patience / 1'000'000);
  }
  if (!why.empty()) {
    out.push(Disconnect{connection_, {ErrorCode::timed_out, why}});
    return lose({ErrorCode::unavailable, why}, out);
  }
  if (live_.owes(now)) transmit(Heartbeat{}, now, out);
  out.push(SetTimer{now + config_.heartbeat});
}

// Before it was up, it was not started; afterwards it is lost, which is said once.
void RemoteCore::lose(Error why, RemoteOutbox& out) {
  if (state_ == State::up) {
    state_ = State::lost;
    out.push(ReplicaLost{{}, ref_, std::move(why)});
  } else if (state_ == State::connecting || state_ == State::greeting) {
    state_ = State::idle;
    out.push(ReplicaDown{{}, ref_, std::move(why)});
  }
}

}  // namespace troupe::actors::link
