// The tap: the one place through which every actor sends. It numbers the message, names its cause, counts it, records
// it, and puts it into a pooled mailbox element.
#pragma once

#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include "actors/trace/recorder.h"
#include "actors/trace/sender.h"
#include "actors/wire/element.h"
#include "actors/wire/home.h"

namespace troupe::actors {

// The monotonic clock that every shell gives to its core.
inline TimeNs now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Which actor an interface belongs to, for the record.
template <class Handle>
inline constexpr Sender kReceiver = Sender::runtime;

// What the posts of a replica share, or those of the front: how many messages each sender has sent (each count has one
// writer; reading is for any thread), the recorder, if there is one, and where their actors live. All but the counts is
// set before the first post is made.
class Counts {
 public:
  std::shared_ptr<trace::Recorder> recorder;
  Home* home = nullptr;  // outlives the actors; null: the first control thread
  Place place{};         // in which recording they are

  static constexpr std::size_t kSenders = 64;  // drivers' ring slots included
  std::atomic<std::uint64_t>& of(std::size_t sender) { return counts_[sender % kSenders].value; }
  std::uint64_t total() const {
    std::uint64_t sum = 0;
    for (const Count& c : counts_) sum += c.value.load(std::memory_order_relaxed);
    return sum;
  }

 private:
  struct alignas(64) Count {
    std::atomic<std::uint64_t> value{0};
  };
  std::array<Count, kSenders> counts_;
};

// One sender's end. Belongs to one actor (or one ring slot of the driver) and its thread.
class Post {
 public:
  // `index` tells senders of one kind apart.
  Post(Sender sender, std::shared_ptr<Counts> counts, std::uint16_t index = 0)
      : self_{sender, index},
        base_(seq_base(self_, counts->place)),
        counts_(std::move(counts)),
        count_(&counts_->of(static_cast<std::size_t>(sender) + index)),
        recorder_(counts_->recorder.get()),
        lane_(recorder_ != nullptr ? &recorder_->lane(sender == Sender::driver ? kDriverLane : kLane) : nullptr) {}

  // The message that the actor takes up, at `now`: what is sent from here on is caused by it.
  template <class M>
  void handling(const M& message, TimeNs now) {
    cause_ = message.ctx.seq;
    if (lane_ != nullptr) record_receipt(message, now);
  }
  void caused_by(std::uint64_t seq) { cause_ = seq; }
  std::uint64_t cause() const { return cause_; }

  // Sends a one-way message. `context` is the sending actor's execution unit, null on a thread that is no actor's. The
  // receiver may be dead: then the message is dropped.
  template <class Handle, class M>
  void send(const Handle& to, M message, caf::execution_unit* context) {
    send(to, kReceiver<Handle>, std::move(message), context);
  }
  // The same where the type does not say who it is.
  template <class Handle, class M>
  void send(const Handle& to, Sender receiver, M message, caf::execution_unit* context) {
    static_assert(caf::response_type_unbox<typename Handle::signatures, caf::detail::type_list<M>>::valid,
                  "the receiver does not take this message");
    if (!to) return;
    stamp(message, receiver);
    caf::actor_cast<caf::abstract_actor*>(to)->enqueue(PooledElement<M>::make(pool_, std::move(message)), context);
  }

  // Numbers, counts and records a message that leaves by another way (a timer, an answer to a request).
  template <class M>
  void stamp(M& message, Sender to = Sender::runtime) {
    message.ctx = TraceCtx{base_ + ++seq_, cause_};
    count_->store(count_->load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    if (lane_ != nullptr) record(message, message.ctx.seq, self_, {to, 0}, now_ns());
  }

  template <class M>
  void stamp_own(M& message) {
    stamp(message, self_.sender);
  }  // it comes back to this actor

  // Records what the core asked of its shell.
  void note(const SetTimer& timer) {
    if (lane_ != nullptr) record(timer, base_ + ++seq_, self_, self_, now_ns());
  }

  std::size_t elements_made() const { return pool_.made(); }

 private:
  static constexpr std::size_t kLane = 512 * 1024;  // some hundreds of steps
  static constexpr std::size_t kDriverLane = 16 * 1024;

  template <class M>
  void record(const M& message, std::uint64_t seq, Party from, Party to, TimeNs now) {
    trace::RecordHead head;
    head.seq = seq;
    head.cause = cause_;
    head.time = now;
    head.thread = thread_number();
    head.from = from;
    head.to = to;
    lane_->push(head, message, trace::kLaneOps<M>);
    recorded();
  }
  // What the runtime's edges send has no number: it gets one of its receiver's, and is recorded here. So is what comes
  // from an actor of another recording, under its own number.
  template <class M>
  void record_receipt(const M& message, TimeNs now) {
    if (cause_ == 0) {
      const std::uint64_t seq = base_ + ++seq_;
      record(message, seq, {}, self_, now);
      cause_ = seq;
    } else if (part_of(cause_) != part_of(base_)) {
      const std::uint64_t seq = std::exchange(cause_, message.ctx.cause);
      record(message, seq, sender_of(seq), self_, now);
      cause_ = seq;
    }
    trace::RecordHead head;
    head.kind = trace::RecordKind::received;
    head.seq = cause_;
    head.time = now;
    head.thread = thread_number();
    head.to = self_;
    head.type = trace::kTypeOf<M>;
    lane_->push(head);
    recorded();
  }
  void recorded() {
    recorder_->poke();
    if (lane_->behind()) recorder_->help(*lane_);
  }
  static std::uint32_t thread_number() {
    static thread_local const auto number = static_cast<std::uint32_t>(::gettid());
    return number;
  }

  Party self_;
  std::uint64_t base_;
  std::uint64_t seq_ = 0;
  std::uint64_t cause_ = 0;
  std::shared_ptr<Counts> counts_;
  std::atomic<std::uint64_t>* count_;
  trace::Recorder* recorder_;  // counts_ holds it
  trace::Lane* lane_;
  BlockPool pool_;
};

}  // namespace troupe::actors
