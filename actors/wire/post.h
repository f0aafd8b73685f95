// The tap: the one place through which every actor sends. It numbers the message, names its cause, counts it, and
// puts it into a pooled mailbox element. A recorder of messages hooks in at Post::send.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "actors/wire/element.h"

namespace troupe::actors {

// Who sends. A seq is {sender, the sender's count}: unique in a runtime without a counter that threads share.
enum class Sender : std::uint16_t { runtime = 1, dispatcher, scheduler, router, sampler, stream, device, delivery, spill, lora, loader, driver };

// How many messages each sender has sent. Each count has one writer; reading is for any thread.
class Counts {
 public:
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
      : base_(std::uint64_t{static_cast<std::uint16_t>(sender)} << 48 | std::uint64_t{index} << 40),
        counts_(std::move(counts)),
        count_(&counts_->of(static_cast<std::size_t>(sender) + index)) {}

  // What is sent from now on is caused by this message.
  void handling(const TraceCtx& ctx) { cause_ = ctx.seq; }
  void caused_by(std::uint64_t seq) { cause_ = seq; }
  std::uint64_t cause() const { return cause_; }

  // Sends a one-way message. `context` is the sending actor's execution unit, null on a thread that is no actor's. The
  // receiver may be dead: then the message is dropped.
  template <class Handle, class M> void send(const Handle& to, M message, caf::execution_unit* context) {
    static_assert(caf::response_type_unbox<typename Handle::signatures, caf::detail::type_list<M>>::valid,
                  "the receiver does not take this message");
    if (!to) return;
    stamp(message);
    caf::actor_cast<caf::abstract_actor*>(to)->enqueue(PooledElement<M>::make(pool_, std::move(message)), context);
  }

  // Numbers and counts a message that leaves by another way (a timer, an answer to a request).
  template <class M> void stamp(M& message) {
    message.ctx = TraceCtx{base_ + ++seq_, cause_};
    count_->store(count_->load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  std::size_t elements_made() const { return pool_.made(); }

 private:
  std::uint64_t base_;
  std::uint64_t seq_ = 0;
  std::uint64_t cause_ = 0;
  std::shared_ptr<Counts> counts_;
  std::atomic<std::uint64_t>* count_;
  BlockPool pool_;
};

}  // namespace troupe::actors
