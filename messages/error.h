// Errors are values: a code that programs switch on, and a sentence that tells a person what to do.
#pragma once

#include <boost/outcome/result.hpp>
#include <boost/outcome/try.hpp>
#include <boost/outcome/utils.hpp>

#include <cstdint>
#include <string>

#include "messages/ids.h"

namespace troupe {

enum class ErrorCode : std::uint8_t {
  none,
  bad_request,  // the client's request breaks a stated limit
  bad_plan,     // a plan contradicts the router's books (a bug of the scheduler)
  bad_file,     // a file is not what it says it is
  unsupported,  // well-formed, but not something this build does
  not_found,
  overloaded,      // a queue is full; try again later
  kv_exhausted,    // blocks do not suffice; DeviceError names the row and the missing blocks
  slot_exhausted,  // no sequence slot is free
  ring_exhausted,  // no readback slot is free (R4)
  unknown_ticket,  // never opened, or settled and already awaited
  twice_awaited,
  stale_feed,  // a feed cell held another ticket's tag
  no_token,    // an all-NaN or fully masked row
  poisoned,    // the row was fed from a row that failed
  not_quiescent,
  device_failed,  // one step or copy failed; the device lives
  device_lost,    // the device is gone (sticky); nothing later works
  io_failed,
  closed,    // torn down, or shutting down
  internal,  // a broken invariant of ours; please report
  unknown_adapter,
  bad_adapter,  // an adapter that cannot be read or does not fit the model
  rank_too_large,
  slot_in_use,  // an adapter slot with users
  timed_out,    // a LoRA command: its scope did not become quiet within the bound
  no_such_peer,
  adapter_gone,  // the adapter that the request was bound to went away before it ran
  unavailable,   // no replica is there, and none is about to come back
};

const char* name(ErrorCode code);  // "kv_exhausted"

struct Error {
  ErrorCode code = ErrorCode::none;
  std::string what;
};

template <class T>
using Result = BOOST_OUTCOME_V2_NAMESPACE::basic_result<T, Error, BOOST_OUTCOME_V2_NAMESPACE::policy::all_narrow>;
inline auto success() { return BOOST_OUTCOME_V2_NAMESPACE::success(); }

// What the device side answers instead of a ticket, a result or an effect's outcome.
struct DeviceError {
  enum class Phase : std::uint8_t { launch, forward, readback, effect };
  Phase phase = Phase::launch;
  ErrorCode code = ErrorCode::none;
  std::uint32_t row = 0;             // launch: the first row that did not fit, or is wrong
  std::uint32_t missing_blocks = 0;  // kv_exhausted: how many more blocks the whole plan needs
  std::string what;
};

template <class Inspector>
auto inspect(Inspector& f, Error& x) {
  return f(x.code, x.what);
}
template <class Inspector>
auto inspect(Inspector& f, DeviceError& x) {
  return f(x.phase, x.code, x.row, x.missing_blocks, x.what);
}

std::string label(const Error& x);        // "bad_file: ..."
std::string label(const DeviceError& x);  // "launch/kv_exhausted{row=3, missing=2}"

}  // namespace troupe

#define TROUPE_TRY(...) BOOST_OUTCOME_TRY(__VA_ARGS__)
