#include "actors/dispatcher/actor.h"

#include <algorithm>

namespace troupe::actors {
namespace {

// The oldest with this id, taken out.
template <class T>
bool take(std::vector<std::pair<std::uint64_t, T>>& from, std::uint64_t id, T& to) {
  const auto it = std::find_if(from.begin(), from.end(), [&](const auto& x) { return x.first == id; });
  if (it == from.end()) return false;
  to = std::move(it->second);
  from.erase(it);
  return true;
}
template <class R>
void give(std::vector<std::pair<std::uint64_t, Answer<R>>>& to, std::uint64_t id, R&& answer) {
  const auto it = std::find_if(to.begin(), to.end(), [&](const auto& x) { return x.first == id; });
  if (it == to.end()) return;
  it->second.give(std::forward<R>(answer));
  to.erase(it);
}

}  // namespace

DispatcherShell::behavior_type DispatcherShell::make_behavior() {
  return {
      [this](const AttachFront& m) { attach(m); },
      [this](const SubmitTo& m) {
        if (fault_.code != ErrorCode::none) {
          SubmitReply refused;
          refused.error = fault_;
          return refused;
        }
        reply_ = {};
        reply_.error = Error{ErrorCode::internal, "the dispatcher gave no answer; please report this"};
        callback_ = m.callback;
        max_tokens_ = m.submit.request ? m.submit.request->stop.max_tokens : 0;
        handle(this, m.submit);
        callback_.reset();
        post_.stamp(reply_);
        return std::move(reply_);
      },
      [this](const Cancel& m) {
        auto promise = make_response_promise<CancelReply>();
        cancels_.emplace_back(m.client, Answer<CancelReply>(promise));
        if (fault_.code != ErrorCode::none) {
          put(CancelReply{{}, RequestId{m.client, 0}, CancelOutcome::not_found, 0});
        } else {
          handle(this, m);
        }
        return promise;
      },
      [this](const Drain& m) {
        auto promise = make_response_promise<Drained>();
        Answer<Drained> answer(promise);  // after a fault nothing finishes: it is closed at once
        if (fault_.code == ErrorCode::none) {
          drains_.push_back(std::move(answer));
          handle(this, m);
        }
        return promise;
      },
      [this](const LoraTo& m) {
        LoraSubmit submit;
        submit.id = ++ids_;
        submit.command = m.command;
        loras_.emplace_back(submit.id, m.callback);
        if (fault_.code != ErrorCode::none) {
          close_loras(fault_);
        } else {
          handle(this, submit);
        }
        return Done{};
      },
      [this](const DrainReplica& m) { return question(changes_, m); },
      [this](const UndrainReplica& m) { return question(changes_, m); },
      [this](const AskReplicas& m) { return question(lists_, m); },
      [this](const LoraAnswer& m) { handle(this, m); },
      [this](const LoraBound& m) { handle(this, m); },
      [this](const AdapterFetched& m) { handle(this, m); },
      [this](const CancelReply& m) { handle(this, m); },
      [this](const Ended& m) { handle(this, m); },
      [this](const Drained& m) { handle(this, m); },
      [this](const Joined& m) { join(m); },
      [this](const ReplicaDown& m) { handle(this, m); },
      [this](const ReplicaLost& m) { handle(this, m); },
      [this](const ReplicaReport& m) { handle(this, m); },
      [this](const Reclaimed& m) { handle(this, m); },
      [this](const Delivered& m) { handle(this, m); },
      [this](const Tick& m) {
        if (timer_.due(now_ns(), *this, post_)) handle(this, m);
      },
  };
}

template <class R, class M>
caf::typed_response_promise<R> DispatcherShell::question(Questions<R>& questions, const M& m) {
  auto promise = make_response_promise<R>();
  Answer<R> answer(promise);
  if (fault_.code == ErrorCode::none) {
    M asked = m;
    asked.id = ++ids_;
    questions.emplace_back(asked.id, std::move(answer));
    handle(this, asked);
  }
  return promise;
}

void DispatcherShell::attach(const AttachFront& m) {
  front_ = m.doors;
  set_down_handler([this](caf::scheduled_actor*, caf::down_msg& gone) { down(gone); });
  monitor(front_->delivery);
}

void DispatcherShell::join(const Joined& m) {
  const std::uint32_t index = m.up.replica.index;
  if (index >= present_.size()) present_.resize(index + 1);
  Present& p = present_[index];
  forget(p);
  p = {m.up.replica, m.doors, m.watch};
  for (const caf::strong_actor_ptr& actor : p.watch) monitor(caf::actor_cast<caf::actor_addr>(actor));
  if (!alone_) handle(this, m.up);
}

void DispatcherShell::forget(Present& replica) {
  for (const caf::strong_actor_ptr& actor : replica.watch) demonitor(caf::actor_cast<caf::actor_addr>(actor));
  replica = {};
}

DispatcherShell::Present* DispatcherShell::find(const ReplicaRef& ref) {
  if (ref.index >= present_.size()) return nullptr;
  Present& p = present_[ref.index];
  return p.ref.incarnation != 0 && (alone_ || p.ref == ref) ? &p : nullptr;
}

void DispatcherShell::down(const caf::down_msg& m) {
  if (fault_.code != ErrorCode::none) return;
  const auto say = [&](const char* whose, const char* then) {
    return Error{ErrorCode::internal, std::string("an actor of the ") + whose + " died (" + caf::to_string(m.reason) + ")" + then};
  };
  if (alone_ || m.source == front_->delivery.address()) return fail(say("runtime", "; stop the runtime and start another"));
  for (const Present& p : present_) {
    const bool its = std::any_of(p.watch.begin(), p.watch.end(), [&](const auto& actor) { return actor->address() == m.source; });
    if (its) return handle(this, ReplicaLost{{}, p.ref, say("replica", "")});
  }
}

void DispatcherShell::fail(Error fault) {
  fault_ = std::move(fault);
  for (const Present& p : present_) send_to(p.doors.scheduler, Halt{{}, fault_});
  caf::anon_send(front_->delivery, EndAll{fault_});
  cancels_.clear();
  drains_.clear();
  changes_.clear();
  lists_.clear();
  close_loras(fault_);
}

// The events' destination is known to delivery before the request can have an event.
void DispatcherShell::put(SubmitReply&& m) {
  if (m.error.code == ErrorCode::none && callback_) {
    caf::anon_send(front_->delivery, Register{m.request, std::exchange(callback_, {}), max_tokens_});
  }
  reply_ = std::move(m);
}

void DispatcherShell::put(Admit&& m) {
  if (callback_) caf::anon_send(front_->delivery, Register{m.id, std::exchange(callback_, {}), max_tokens_});
  to_requests(std::move(m));
}

void DispatcherShell::put(AskReport&& m) {
  if (Present* p = find(m.replica)) send_to(p->doors.scheduler, std::move(m));
}

void DispatcherShell::put(Reclaim&& m) { send_to(front_->delivery, std::move(m)); }
void DispatcherShell::put(EndRequests&& m) { send_to(front_->delivery, std::move(m)); }

void DispatcherShell::put(StartReplica&& m) {
  const std::uint32_t index = m.replica.index;
  if (index < front_->makers.size()) post_.send(front_->makers[index], Sender::runtime, std::move(m), context());
}

// What ends of it from here on was asked to.
void DispatcherShell::put(StopReplica&& m) {
  const std::uint32_t index = m.replica.index;
  if (Present* p = find(m.replica)) forget(*p);
  if (index < front_->makers.size()) post_.send(front_->makers[index], Sender::runtime, std::move(m), context());
}

void DispatcherShell::put(ReplicaAnswer&& m) {
  post_.stamp(m);
  give(changes_, m.id, std::move(m));
}

void DispatcherShell::put(ReplicaList&& m) {
  post_.stamp(m);
  give(lists_, m.id, std::move(m));
}

void DispatcherShell::put(LoraAnswer&& m) {
  post_.stamp(m);
  std::shared_ptr<LoraCallback> callback;
  if (take(loras_, m.id, callback)) (*callback)(m);
}

void DispatcherShell::close_loras(const Error& error) {
  LoraAnswer closed;
  closed.error = error;
  for (const auto& [id, callback] : std::exchange(loras_, {})) (*callback)(closed);
}

void DispatcherShell::put(CancelReply&& m) {
  post_.stamp(m);
  const std::uint64_t client = m.id.client;
  give(cancels_, client, std::move(m));
}

void DispatcherShell::put(Drained&& m) {
  post_.stamp(m);
  for (auto& answer : drains_) answer.give(m);
  drains_.clear();
}

void DispatcherShell::on_exit() {
  cancels_.clear();
  drains_.clear();
  changes_.clear();
  lists_.clear();
  close_loras(Error{ErrorCode::closed, "the runtime has stopped"});
  present_.clear();
  front_.reset();
  Shell::on_exit();
}

}  // namespace troupe::actors
