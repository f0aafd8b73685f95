#include "messages/error.h"

#include <fmt/format.h>

namespace troupe {
namespace {

const char* name(DeviceError::Phase phase) {
  switch (phase) {
    case DeviceError::Phase::launch:
      return "launch";
    case DeviceError::Phase::forward:
      return "forward";
    case DeviceError::Phase::readback:
      return "readback";
    case DeviceError::Phase::effect:
      return "effect";
  }
  return "?";
}

}  // namespace

const char* name(ErrorCode code) {
  switch (code) {
    case ErrorCode::none:
      return "none";
    case ErrorCode::bad_request:
      return "bad_request";
    case ErrorCode::bad_plan:
      return "bad_plan";
    case ErrorCode::bad_file:
      return "bad_file";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::not_found:
      return "not_found";
    case ErrorCode::overloaded:
      return "overloaded";
    case ErrorCode::kv_exhausted:
      return "kv_exhausted";
    case ErrorCode::slot_exhausted:
      return "slot_exhausted";
    case ErrorCode::ring_exhausted:
      return "ring_exhausted";
    case ErrorCode::unknown_ticket:
      return "unknown_ticket";
    case ErrorCode::twice_awaited:
      return "twice_awaited";
    case ErrorCode::stale_feed:
      return "stale_feed";
    case ErrorCode::no_token:
      return "no_token";
    case ErrorCode::poisoned:
      return "poisoned";
    case ErrorCode::not_quiescent:
      return "not_quiescent";
    case ErrorCode::device_failed:
      return "device_failed";
    case ErrorCode::device_lost:
      return "device_lost";
    case ErrorCode::io_failed:
      return "io_failed";
    case ErrorCode::closed:
      return "closed";
    case ErrorCode::internal:
      return "internal";
    case ErrorCode::unknown_adapter:
      return "unknown_adapter";
    case ErrorCode::bad_adapter:
      return "bad_adapter";
    case ErrorCode::rank_too_large:
      return "rank_too_large";
    case ErrorCode::slot_in_use:
      return "slot_in_use";
    case ErrorCode::timed_out:
      return "timed_out";
    case ErrorCode::no_such_peer:
      return "no_such_peer";
    case ErrorCode::adapter_gone:
      return "adapter_gone";
    case ErrorCode::unavailable:
      return "unavailable";
  }
  return "?";
}

std::string label(const Error& x) {
  if (x.what.empty()) return name(x.code);
  return fmt::format("{}: {}", name(x.code), x.what);
}

// Row and missing blocks are shown where they mean something.
std::string label(const DeviceError& x) {
  std::string head = fmt::format("{}/{}", name(x.phase), name(x.code));
  if (x.code == ErrorCode::kv_exhausted) return fmt::format("{}{{row={}, missing={}}}", head, x.row, x.missing_blocks);
  if (x.phase == DeviceError::Phase::launch && x.code == ErrorCode::bad_plan) return fmt::format("{}{{row={}}}", head, x.row);
  return head;
}

}  // namespace troupe
