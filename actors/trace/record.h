// One record of a recording: that a message was sent, with the message, or that it was taken up by its receiver, with the
// time that the receiver's core was given. Messages of the runtime's edges come without a number; their receiver's shell
// numbers and records them.
#pragma once

#include <cstdint>
#include <type_traits>
#include <variant>

#include "actors/trace/bytes.h"
#include "actors/trace/sender.h"
#include "messages/registry.h"

namespace troupe::actors::trace {

enum class RecordKind : std::uint8_t {
  sent = 1,
  received,
  lost,  // `seq` says how many records the recorder had no room for
};

struct RecordHead {
  RecordKind kind = RecordKind::sent;
  std::uint64_t seq = 0;    // of the message
  std::uint64_t cause = 0;  // the message whose handling sent it; 0 = none
  TimeNs time = 0;          // monotonic; received: the `now` of the handler
  std::uint32_t thread = 0;
  Party from;
  Party to;
  std::uint16_t type = 0;  // index in AnyMessage
  RequestId request;       // what it is about, where it names one
  Ticket ticket;
};

// Any message, or the timer that a core asked for. Index 0: its type is not known to this build, or it was not sent.
#define TROUPE_MEMBER(M) , M
using AnyMessage = std::variant<std::monostate TROUPE_MESSAGES(TROUPE_MEMBER), SetTimer>;
#undef TROUPE_MEMBER

namespace record_detail {
template <class M, class V>
struct IndexOf;
template <class M, class... Ms>
struct IndexOf<M, std::variant<Ms...>> {
  static constexpr std::uint16_t value = [] {
    std::uint16_t i = 0;
    (void)((std::is_same_v<M, Ms> || (++i, false)) || ...);
    return i;
  }();
};
}  // namespace record_detail

template <class M>
inline constexpr std::uint16_t kTypeOf = record_detail::IndexOf<M, AnyMessage>::value;
inline constexpr std::size_t kTypes = std::variant_size_v<AnyMessage>;
static_assert(kTypeOf<SetTimer> + 1 == kTypes);

// What a message is about, by the names that its fields have.
template <class M>
void correlate(const M& m, RecordHead& head) {
  if constexpr (requires { requires std::is_same_v<std::decay_t<decltype(m.request)>, RequestId>; }) head.request = m.request;
  if constexpr (requires { requires std::is_same_v<std::decay_t<decltype(m.id)>, RequestId>; }) head.request = m.id;
  if constexpr (requires { Ticket{m.ticket}; }) head.ticket = m.ticket;
  const auto shared = [&](const auto& x) {
    if (!x) return;
    if constexpr (requires { Ticket{x->ticket}; }) head.ticket = x->ticket;
  };
  if constexpr (requires { m.plan->ticket; }) shared(m.plan);
  if constexpr (requires { m.result->ticket; }) shared(m.result);
  if constexpr (requires { m.step->ticket; }) shared(m.step);
  if constexpr (requires { m.batch->ticket; }) shared(m.batch);
  if constexpr (requires { m.request->prompt; }) {
    if (m.request && head.request.generation == 0) head.request.client = m.request->client;
  }
  if constexpr (std::is_same_v<M, Cancel>) head.request.client = m.client;
}

// The error that a message carries; none if it carries none.
template <class M>
ErrorCode error_of(const M& m) {
  if constexpr (requires { ErrorCode{m.error.code}; }) {
    return m.error.code;
  } else if constexpr (requires { ErrorCode{m.result->error.code}; }) {
    return m.result ? m.result->error.code : ErrorCode::none;
  } else {
    return ErrorCode::none;
  }
}

// Whether the payloads that the message cannot be without are there.
template <class M>
bool whole(const M& m) {
  bool ok = true;
  if constexpr (requires { m.plan->ticket; }) ok = ok && m.plan;
  if constexpr (requires { m.result->ticket; }) ok = ok && m.result;
  if constexpr (requires { m.step->ticket; }) ok = ok && m.step;
  if constexpr (requires { *m.batch; }) ok = ok && m.batch;
  if constexpr (requires { m.request->prompt; }) ok = ok && m.request;
  return ok;
}

const char* type_name(std::uint16_t type);  // "Launch"; "unknown"
std::string label(const AnyMessage& m);     // the message's; "?" for index 0

}  // namespace troupe::actors::trace
