// The Ticks that a core has asked for. The actor holds one; at most one message per distinct time is under way.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

#include "actors/wire/post.h"

namespace troupe::actors {

class Timer {
 public:
  // Asks for a Tick at `at`, if none is asked for then.
  void set(TimeNs at, caf::local_actor& self, Post& post) {
    post.note(SetTimer{at});
    const auto it = std::lower_bound(pending_.begin(), pending_.end(), at);
    if (it != pending_.end() && *it == at) return;
    pending_.insert(it, at);
    arm(self, post);
  }
  // A Tick has arrived: whether one was due. Arms the next.
  bool due(TimeNs now, caf::local_actor& self, Post& post) {
    if (armed_ <= now) armed_ = kNever;
    const auto it = std::upper_bound(pending_.begin(), pending_.end(), now);
    const bool any = it != pending_.begin();
    pending_.erase(pending_.begin(), it);
    arm(self, post);
    return any;
  }

 private:
  static constexpr TimeNs kNever = INT64_MAX;

  void arm(caf::local_actor& self, Post& post) {
    if (pending_.empty() || pending_.front() >= armed_) return;
    armed_ = pending_.front();
    Tick tick;
    post.stamp_own(tick);
    const caf::actor_clock::time_point when{std::chrono::nanoseconds{armed_}};
    auto to = caf::strong_actor_ptr{self.ctrl()};
    self.system().clock().schedule_message(when, std::move(to),
                                           caf::make_mailbox_element(nullptr, caf::make_message_id(), {}, std::move(tick)));
  }

  std::vector<TimeNs> pending_;  // ascending
  TimeNs armed_ = kNever;        // when the earliest message under way arrives
};

}  // namespace troupe::actors
