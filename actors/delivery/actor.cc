#include "actors/delivery/actor.h"

#include <string_view>
#include <utility>

#include "actors/runtime.h"

namespace troupe::actors {
namespace {

// What a callback throws is the client's own affair: it has had the event.
void call(const Callback& callback, const RequestEvent& event) noexcept {
  try {
    if (callback) callback(event);
  } catch (...) {
  }
}

}  // namespace

DeliveryShell::DeliveryShell(caf::actor_config& config, std::shared_ptr<Counts> counts, std::shared_ptr<DeliveryThread> thread)
    : DeliveryActor::base(config), post_(Sender::delivery, std::move(counts)), thread_(std::move(thread)) {
  keep_quiet(*this);
}

DeliveryShell::behavior_type DeliveryShell::make_behavior() {
  thread_->id = std::this_thread::get_id();  // a detached actor starts on its own thread
  return {
      [this](const Register& m) { open_[m.id] = m.callback; },
      [this](const Deliver& m) {
        post_.handling(m, now_ns());
        deliver(*m.batch);
      },
      [this](const EndAll& m) {
        end_all(m.error);
        return Done{};
      },
  };
}

void DeliveryShell::deliver(const TokenBatch& batch) {
  const std::string_view text = batch.text;
  for (const TokenEvent& token : batch.events) {
    const auto it = open_.find(token.request);
    if (it == open_.end()) continue;  // it has ended
    RequestEvent event;
    event.request = token.request;
    event.token = &token;
    event.text = text.substr(token.text_begin, token.text_size);
    event.best = token.best_size == 0 ? nullptr : batch.best.data() + token.best_begin;
    call(*it->second, event);
  }
  for (const Finish& finish : batch.finishes) {
    const auto it = open_.find(finish.request);
    if (it == open_.end()) continue;  // it has ended
    const std::shared_ptr<Callback> callback = std::move(it->second);
    open_.erase(it);
    RequestEvent event;
    event.request = finish.request;
    event.finish = &finish;
    event.text = text.substr(finish.text_begin, finish.text_size);
    call(*callback, event);
  }
}

void DeliveryShell::end_all(const Error& error) {
  for (auto& [id, callback] : std::exchange(open_, {})) {
    Finish finish;
    finish.request = id;
    finish.reason = FinishReason::error;
    finish.error = error;
    RequestEvent event;
    event.request = id;
    event.finish = &finish;
    call(*callback, event);
  }
}

}  // namespace troupe::actors
