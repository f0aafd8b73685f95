// Identities that cross mailboxes. All are trivially copyable values.
//
// Invariants
//   - A SeqId is never reused in a run, and a Ticket never names two steps: both carry the router's
//     incarnation, so that what an earlier router said about them can be told apart (R6).
//   - A RequestId is (client id, generation): the same client id may come again while a step of its
//     earlier generation is still in flight.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace troupe {

using Token = std::uint32_t;                      // a vocabulary id that is known; an unknown one is a FeedSource (R6)
using BlockId = std::uint32_t;                    // index of a KV block in the pool
inline constexpr BlockId kNoBlock = 0xFFFFFFFFu;  // a block-table entry that names none
using TimeNs = std::int64_t;                      // monotonic clock, nanoseconds; cores only ever receive it

struct RequestId {
  std::uint64_t client = 0;      // chosen by the embedder; unique among its live requests
  std::uint64_t generation = 0;  // chosen by the dispatcher; 0 = no request
  auto operator<=>(const RequestId&) const = default;
};

// One device pass. `step` is the scheduler's count from 1, so that plan t+1 can name t before launch(t) is answered.
struct Ticket {
  std::uint32_t incarnation = 0;  // the router's; 0 = no ticket
  std::uint64_t step = 0;
  auto operator<=>(const Ticket&) const = default;

  // What the device stores in a feed cell and compares at every read (R6).
  std::uint32_t tag() const {
    return static_cast<std::uint32_t>(step * 2654435761u) ^ (incarnation << 24) ^ static_cast<std::uint32_t>(step >> 32);
  }
};

struct SeqId {
  std::uint32_t incarnation = 0;  // the router's; 0 = no sequence
  std::uint64_t number = 0;
  auto operator<=>(const SeqId&) const = default;
};

// A LoRA adapter as a row names it. Slot 0, generation 0 = the base model.
struct AdapterRef {
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  auto operator<=>(const AdapterRef&) const = default;
};

// A replica of the runtime (one device with its actors) in one of its lives. A restart raises the incarnation, which is also
// the router's: tickets and sequences of two lives never mix.
struct ReplicaRef {
  std::uint32_t index = 0;        // in the order of RuntimeOptions, from 0
  std::uint32_t incarnation = 0;  // 0 = none
  auto operator<=>(const ReplicaRef&) const = default;
};

template <class Inspector>
auto inspect(Inspector& f, RequestId& x) {
  return f(x.client, x.generation);
}
template <class Inspector>
auto inspect(Inspector& f, Ticket& x) {
  return f(x.incarnation, x.step);
}
template <class Inspector>
auto inspect(Inspector& f, SeqId& x) {
  return f(x.incarnation, x.number);
}
template <class Inspector>
auto inspect(Inspector& f, AdapterRef& x) {
  return f(x.slot, x.generation);
}
template <class Inspector>
auto inspect(Inspector& f, ReplicaRef& x) {
  return f(x.index, x.incarnation);
}

std::string label(const RequestId& x);   // "7#2"
std::string label(const Ticket& x);      // "t1.42"
std::string label(const SeqId& x);       // "s1.5"
std::string label(const AdapterRef& x);  // "a3g1"
std::string label(const ReplicaRef& x);  // "r0.1"

}  // namespace troupe
