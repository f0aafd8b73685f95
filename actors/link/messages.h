// What crosses a link between a runtime and a node: the requests' level of the protocol, and what the two ends of the link say
// to each other. A step never crosses.
//
// Wire form: a frame (frame.h) whose type is the message's place in LinkMessage, and whose payload is a number, 1 for the
// first frame that a side sends and one more for each, and then the message as trace/bytes.h writes it. New messages go to
// the end of the list, and kVersion rises whenever a message changes its form; Hello's first two fields, and Refused, never
// change.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "messages/protocol.h"

namespace troupe::actors::link {

inline constexpr std::uint32_t kMagic = 0x4B4E4C54;  // "TLNK"
inline constexpr std::uint32_t kVersion = 1;
inline constexpr TimeNs kShortestHeartbeat = 1'000'000;
inline constexpr ErrorCode kLastErrorCode = ErrorCode::unavailable;

// The `replica` of a Hello that only asks what is there: it is answered by Welcome at once, and the link ends.
inline constexpr std::uint32_t kNoReplica = 0xFFFFFFFF;

// Runtime -> node, first: this replica of yours is mine from now on, as `ref`.
struct Hello {
  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint64_t owner = 0;    // drawn by the runtime at its start: whose the replica is
  std::uint32_t replica = 0;  // the node's number for it
  ReplicaRef ref;             // the runtime's, and how often it has come
  TimeNs heartbeat = 0;       // something is sent at least that often, both ways,
  TimeNs silence = 0;         // and after that long without anything the link is lost
};
// Node -> runtime, when the replica has nothing left of whoever had it before.
struct Welcome {
  std::string node;                   // its name
  std::vector<std::string> replicas;  // the names of all that it has, "host:0"
  ModelInfo model;                    // without its token table
  std::uint64_t tokens = 0;           // token_hash() of that
};
struct Refused {  // instead, or at any time later; the link ends
  Error error;
};
struct Heartbeat {};

template <class I>
auto inspect(I& f, Hello& x) {
  return f(x.magic, x.version, x.owner, x.replica, x.ref, x.heartbeat, x.silence);
}
template <class I>
auto inspect(I& f, Welcome& x) {
  return f(x.node, x.replicas, x.model, x.tokens);
}
template <class I>
auto inspect(I& f, Refused& x) {
  return f(x.error);
}
template <class I>
auto inspect(I& f, Heartbeat&) {
  return f();
}

using LinkMessage = std::variant<Hello, Welcome, Refused, Heartbeat,                                // the two ends
                                 Admit, CancelRequest, Drain, LoraSubmit, FetchAdapter, AskReport,  // to the node
                                 Deliver, Ended, CancelReply, Drained, LoraAnswer, LoraBound, AdapterFetched, ReplicaLost,
                                 ReplicaReport>;  // from it

// A message's type on the wire.
template <class M, std::size_t I = 0>
constexpr std::uint8_t type_of() {
  if constexpr (std::is_same_v<std::variant_alternative_t<I, LinkMessage>, M>) {
    return I;
  } else {
    return type_of<M, I + 1>();
  }
}

// Which side may send it. The two ends' own go by their names: Hello to the node, Welcome from it, Refused and Heartbeat both ways.
template <class M>
inline constexpr bool kToNode = false;
template <class M>
inline constexpr bool kFromNode = false;
#define TROUPE_TO_NODE(M) \
  template <>             \
  inline constexpr bool kToNode<M> = true
#define TROUPE_FROM_NODE(M) \
  template <>               \
  inline constexpr bool kFromNode<M> = true
TROUPE_TO_NODE(Hello);
TROUPE_TO_NODE(Refused);
TROUPE_TO_NODE(Heartbeat);
TROUPE_TO_NODE(Admit);
TROUPE_TO_NODE(CancelRequest);
TROUPE_TO_NODE(Drain);
TROUPE_TO_NODE(LoraSubmit);
TROUPE_TO_NODE(FetchAdapter);
TROUPE_TO_NODE(AskReport);
TROUPE_FROM_NODE(Welcome);
TROUPE_FROM_NODE(Refused);
TROUPE_FROM_NODE(Heartbeat);
TROUPE_FROM_NODE(Deliver);
TROUPE_FROM_NODE(Ended);
TROUPE_FROM_NODE(CancelReply);
TROUPE_FROM_NODE(Drained);
TROUPE_FROM_NODE(LoraAnswer);
TROUPE_FROM_NODE(LoraBound);
TROUPE_FROM_NODE(AdapterFetched);
TROUPE_FROM_NODE(ReplicaLost);
TROUPE_FROM_NODE(ReplicaReport);
#undef TROUPE_TO_NODE
#undef TROUPE_FROM_NODE

// The most bytes of a frame. Those that carry an adapter are megabytes; of the others a few bytes can stand for many in memory
// (a list of empty texts: one for 32), so that they are kept smaller.
inline constexpr std::size_t kMostBytes = std::size_t{4} << 20;
inline constexpr std::size_t kMostAdapterBytes = std::size_t{96} << 20;
constexpr std::size_t most_bytes(std::uint8_t type) {
  return type == type_of<LoraSubmit>() || type == type_of<AdapterFetched>() ? kMostAdapterBytes : kMostBytes;
}

}  // namespace troupe::actors::link
