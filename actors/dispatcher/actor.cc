#include "actors/dispatcher/actor.h"

#include <algorithm>

namespace troupe::actors {

DispatcherShell::behavior_type DispatcherShell::make_behavior() {
  return {
      [this](const Attach& m) { attach(m); },
      [this](const SubmitTo& m) {
        if (fault_.code != ErrorCode::none) {
          SubmitReply refused;
          refused.error = fault_;
          return refused;
        }
        reply_ = {};
        reply_.error = Error{ErrorCode::internal, "the dispatcher gave no answer; please report this"};
        callback_ = m.callback;
        request_ = m.submit.request;
        handle(this, m.submit);
        callback_.reset();
        request_ = {};
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
        submit.id = ++lora_ids_;
        submit.command = m.command;
        loras_.emplace_back(submit.id, m.callback);
        if (fault_.code != ErrorCode::none) {
          close_loras(fault_);
        } else {
          handle(this, submit);
        }
        return Done{};
      },
      [this](const LoraAnswer& m) { handle(this, m); },
      [this](const CancelReply& m) { handle(this, m); },
      [this](const LoraBound& m) { handle(this, m); },
      [this](const AdapterFetched& m) { handle(this, m); },
      [this](const ReplicaLost& m) { handle(this, m); },
      [this](const ReplicaReport& m) { handle(this, m); },
      [this](const Reclaimed& m) { handle(this, m); },
      [this](const Delivered& m) { handle(this, m); },
      [this](const Tick& m) {
        if (timer_.due(now_ns(), *this, post_)) handle(this, m);
      },
      [this](const Ended& m) { handle(this, m); },
      [this](const Drained& m) { handle(this, m); },
  };
}

void DispatcherShell::attach(const Attach& m) {
  peers_ = m.peers;
  set_down_handler([this](caf::scheduled_actor*, caf::down_msg& gone) { down(gone); });
  const auto watch = [this](const auto&... actors) { ((actors ? monitor(actors) : void()), ...); };
  watch(peers_->scheduler, peers_->router, peers_->sampler, peers_->stream, peers_->device, peers_->delivery, peers_->lora, peers_->loader);
}

void DispatcherShell::down(const caf::down_msg& m) {
  if (fault_.code != ErrorCode::none) return;
  fault_ =
      Error{ErrorCode::internal, "an actor of the runtime died (" + caf::to_string(m.reason) + "); stop the runtime and start another"};
  send_to(peers_->scheduler, Halt{{}, fault_});
  caf::anon_send(peers_->delivery, EndAll{fault_});
  cancels_.clear();
  drains_.clear();
  close_loras(fault_);
}

// The events' destination is known to delivery before the request can have an event.
void DispatcherShell::open(const RequestId& id) {
  if (callback_ == nullptr) return;
  caf::anon_send(peers_->delivery, Register{id, std::exchange(callback_, nullptr), request_->stop.max_tokens});
}

void DispatcherShell::put(SubmitReply&& m) {
  if (m.error.code == ErrorCode::none) open(m.request);
  reply_ = std::move(m);
}

void DispatcherShell::put(Admit&& m) {
  if (m.attempt == 0 && m.request.get() == request_.get()) open(m.id);
  to_scheduler(std::move(m));
}

void DispatcherShell::put(LoraAnswer&& m) {
  post_.stamp(m);
  const auto it = std::find_if(loras_.begin(), loras_.end(), [&](const auto& c) { return c.first == m.id; });
  if (it == loras_.end()) return;
  const std::shared_ptr<LoraCallback> callback = std::move(it->second);
  loras_.erase(it);
  (*callback)(m);
}

void DispatcherShell::close_loras(const Error& error) {
  LoraAnswer closed;
  closed.error = error;
  for (const auto& [id, callback] : std::exchange(loras_, {})) (*callback)(closed);
}

void DispatcherShell::put(CancelReply&& m) {
  post_.stamp(m);
  const auto it = std::find_if(cancels_.begin(), cancels_.end(), [&](const auto& c) { return c.first == m.id.client; });
  if (it == cancels_.end()) return;
  it->second.give(std::move(m));
  cancels_.erase(it);
}

void DispatcherShell::put(Drained&& m) {
  post_.stamp(m);
  for (auto& answer : drains_) answer.give(m);
  drains_.clear();
}

void DispatcherShell::on_exit() {
  cancels_.clear();
  drains_.clear();
  close_loras(Error{ErrorCode::closed, "the runtime has stopped"});
  Shell::on_exit();
}

}  // namespace troupe::actors
