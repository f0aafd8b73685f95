// What the labels of messages are made of. Included by the .cc files beside it only.
#pragma once

#include <fmt/format.h>

#include <string>

#include "messages/ids.h"
#include "messages/shared.h"

namespace troupe::protocol_text {

template <class T>
std::string of(const Shared<T>& x) {
  return x ? label(*x) : std::string("(empty)");
}

// "Opened 7#2 ..." on success, "Opened 7#2 launch/slot_exhausted" on failure.
template <class E>
std::string or_error(std::string head, const E& error, const std::string& rest) {
  head += ' ';
  head += error.code != ErrorCode::none ? label(error) : rest;
  return head;
}

inline std::string bracketed(const Ticket& ticket, std::uint32_t slot) { return fmt::format("{} slot={}", label(ticket), slot); }

// Empty for the one replica of a runtime that has no other, in its first life.
inline std::string at(const ReplicaRef& x) { return x == ReplicaRef{} || x == ReplicaRef{0, 1} ? std::string() : " " + label(x); }

}  // namespace troupe::protocol_text
