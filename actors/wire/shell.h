// What every shell does alike: it hands each message with the time to its core and sends what the outbox then holds;
// and it keeps CAF quiet (CAF prints unexpected messages, down messages and exceptions to stdout by itself).
#pragma once

#include <exception>
#include <memory>
#include <utility>

#include "actors/wire/answer.h"
#include "actors/wire/home.h"
#include "actors/wire/interfaces.h"
#include "actors/wire/post.h"
#include "actors/wire/timer.h"

namespace troupe::actors {

// An exception in a handler ends the actor with this reason; who monitors it decides what follows.
inline void keep_quiet(caf::scheduled_actor& self) {
  self.set_default_handler(caf::drop);
  self.set_down_handler([](caf::scheduled_actor*, caf::down_msg&) {});
  self.set_error_handler([](caf::scheduled_actor*, caf::error&) {});
  self.set_exception_handler([](caf::scheduled_actor*, std::exception_ptr&) -> caf::error { return caf::sec::runtime_error; });
}

// Interface: the typed actor; Derived: has post_, and send(message) for each type in its core's outbox.
template <class Interface, class Core, class Box>
class Shell : public AtHome<Interface> {
 protected:
  template <class... Args>
  Shell(caf::actor_config& config, Sender sender, std::shared_ptr<Counts> counts, Args&&... args)
      : AtHome<Interface>(config, counts->home), post_(sender, std::move(counts)), core_(std::forward<Args>(args)...) {
    keep_quiet(*this);
  }

  // One message through the core, and what the core has to send once that is on its way.
  template <class Self, class M>
  static void handle(Self* self, const M& m) {
    const TimeNs now = now_ns();
    self->post_.handling(m, now);
    self->core_.on(m, now, self->out_);
    send_all(self);
    if constexpr (requires { self->core_.deliver(self->out_); }) {
      self->core_.deliver(self->out_);
      send_all(self);
    }
  }
  template <class Self>
  static void send_all(Self* self) {
    self->out_.drain([self](auto&& message) { self->put(std::forward<decltype(message)>(message)); });
  }
  template <class Handle, class M>
  void send_to(const Handle& to, M&& message) {
    post_.send(to, std::forward<M>(message), this->context());
  }
  void on_exit() override { peers_.reset(); }

  std::shared_ptr<const Peers> peers_;
  Post post_;
  Core core_;
  Box out_;
};

}  // namespace troupe::actors
