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

DeliveryShell::DeliveryShell(caf::actor_config& config, std::shared_ptr<Counts> counts, const DeliveryConfig& core,
                             std::shared_ptr<DeliveryThread> thread)
    : Shell(config, Sender::delivery, std::move(counts), core), thread_(std::move(thread)) {}

DeliveryShell::behavior_type DeliveryShell::make_behavior() {
  thread_->id = std::this_thread::get_id();  // a detached actor starts on its own thread
  return {
      [this](const AttachFront& m) { front_ = m.doors; },
      [this](const Register& m) {
        core_.open(m.id, m.max_tokens);
        open_[m.id] = m.callback;
      },
      [this](const Deliver& m) {
        handle(this, m);
        deliver(*m.batch);
      },
      [this](const Reclaim& m) { handle(this, m); },
      [this](const EndRequests& m) {
        handle(this, m);
        const std::string_view text = m.text;
        for (const std::uint32_t i : core_.finishes()) {
          const Finish& finish = m.finishes[i];
          end(finish, text.substr(finish.text_begin, finish.text_size));
        }
      },
      [this](const EndAll& m) {
        end_all(m.error);
        return Done{};
      },
  };
}

void DeliveryShell::on_exit() {
  open_.clear();
  front_.reset();
  Shell::on_exit();
}

void DeliveryShell::deliver(const TokenBatch& batch) {
  const std::string_view text = batch.text;
  for (const std::uint32_t i : core_.events()) {
    const TokenEvent& token = batch.events[i];
    const auto it = open_.find(token.request);
    if (it == open_.end()) continue;
    RequestEvent event;
    event.request = token.request;
    event.token = &token;
    event.text = text.substr(token.text_begin, token.text_size);
    event.best = token.best_size == 0 ? nullptr : batch.best.data() + token.best_begin;
    call(*it->second, event);
  }
  for (const std::uint32_t i : core_.finishes()) {
    const Finish& finish = batch.finishes[i];
    end(finish, text.substr(finish.text_begin, finish.text_size));
  }
}

void DeliveryShell::end(const Finish& finish, std::string_view text) {
  const auto it = open_.find(finish.request);
  if (it == open_.end()) return;
  const std::shared_ptr<Callback> callback = std::move(it->second);
  open_.erase(it);
  RequestEvent event;
  event.request = finish.request;
  event.finish = &finish;
  event.text = text;
  call(*callback, event);
}

void DeliveryShell::end_all(const Error& error) {
  core_.clear();
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
