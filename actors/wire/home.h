// Where an actor lives: one of the control threads of its system. Whoever sends to it, it runs there.
//
// CAF hands an actor that gets its first message to the sender's thread (execution unit). An actor that derives from
// AtHome hands itself to its home instead: over the home's queue for jobs from outside, which has the only lock, or
// without it where the sender is at home too.
#pragma once

#include <memory>
#include <utility>

#include <caf/all.hpp>

namespace troupe::actors {

// Polled by a control thread while it has nothing to run; set and cleared by an actor on that thread. Returns whether to
// go on polling instead of parking.
struct IdleHook {
  bool (*call)(void* context, caf::execution_unit* unit) = nullptr;
  void* context = nullptr;
};

// A piece of work that may as well be done now, by a control thread while it would only spin. Returns whether there is
// more. Set before the first actor is spawned there.
struct IdleWork {
  bool (*call)(void* context) = nullptr;
  std::shared_ptr<void> context;
};

// Any thread calls exec_later() and unit(); the hook is the control thread's.
class Home : public caf::execution_unit {
 public:
  using caf::execution_unit::execution_unit;
  // What a job for this thread is to be given to by a sender with this unit (null: a thread that is no actor's).
  caf::execution_unit* unit(caf::execution_unit* sender) { return sender == worker_ ? sender : this; }

  IdleHook idle_hook;

 protected:
  caf::execution_unit* worker_ = nullptr;  // the control thread's own
};

// Interface: the typed actor. Without a home it runs where CAF puts it; a detached actor has a thread of its own anyway.
template <class Interface>
class AtHome : public Interface::base {
 public:
  using Base = typename Interface::base;
  using Base::enqueue;

  void enqueue(caf::mailbox_element_ptr element, caf::execution_unit* sender) override {
    Base::enqueue(std::move(element), home_ != nullptr ? home_->unit(sender) : sender);
  }
  void launch(caf::execution_unit* unit, bool lazy, bool hide) override {
    Base::launch(home_ != nullptr ? home_->unit(unit) : unit, lazy, hide);
  }

 protected:
  AtHome(caf::actor_config& config, Home* home) : Base(config), home_(home) {}
  Home* home_;  // outlives the actor
};

}  // namespace troupe::actors
