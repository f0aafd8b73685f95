// Questions to actors from threads that are no actor's: each waits, so never call them on a control thread.
#pragma once

#include <chrono>
#include <optional>
#include <utility>

#include "actors/wire/inspect.h"
#include "messages/error.h"

namespace troupe::actors {

inline Error runtime_closed() { return Error{ErrorCode::closed, "the runtime has stopped; start another"}; }

// CAF leaves the system's logger in a thread-local variable of whoever used a scoped actor, and the end of the system
// waits until nobody holds it: a thread that called the runtime once, and lives on, would hang stop() for ever.
struct ForgetLogger {
  ~ForgetLogger() { caf::logger::set_current_actor_system(nullptr); }
};

// One request and its answer. closed: the actor is gone, or no answer came in time.
template <class R, class Handle, class M>
Result<R> ask(caf::actor_system& system, const Handle& to, M message, std::optional<std::chrono::nanoseconds> limit = {}) {
  const ForgetLogger forget;  // after the scoped actor is gone
  caf::scoped_actor self{system};
  Result<R> result = runtime_closed();
  const auto take = [&](R& answer) { result = std::move(answer); };
  const auto fail = [&](caf::error&) {};
  if (limit) {
    const caf::duration wait{std::chrono::ceil<std::chrono::milliseconds>(*limit)};
    self->request(to, wait, std::move(message)).receive(take, fail);
  } else {
    self->request(to, caf::infinite, std::move(message)).receive(take, fail);
  }
  return result;
}

// Lets an actor work off its mailbox and end, and waits until it has.
template <class Handle>
void end(caf::actor_system& system, const Handle& actor) {
  const ForgetLogger forget;  // after the scoped actor is gone
  caf::scoped_actor self{system};
  caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
  self->wait_for(actor);
}

}  // namespace troupe::actors
