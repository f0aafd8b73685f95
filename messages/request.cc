#include "messages/request.h"

#include <fmt/format.h>

namespace troupe {

const char* name(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::cancelled:
      return "cancelled";
    case FinishReason::deadline:
      return "deadline";
    case FinishReason::error:
      return "error";
  }
  return "?";
}

const char* name(CancelOutcome outcome) {
  switch (outcome) {
    case CancelOutcome::cancelled_waiting:
      return "cancelled_waiting";
    case CancelOutcome::cancelled_running:
      return "cancelled_running";
    case CancelOutcome::already_finished:
      return "already_finished";
    case CancelOutcome::not_found:
      return "not_found";
  }
  return "?";
}

std::string label(const Request& x) {
  return fmt::format("Request{{{}, prompt={}, max={}}}", x.client, x.prompt.size(), x.stop.max_tokens);
}

std::string label(const TokenBatch& x) { return fmt::format("Tokens{{n={}, finished={}}}", x.events.size(), x.finishes.size()); }

std::string label(const Finish& x) {
  return fmt::format("Finish{{{}, {}, {} tokens}}", label(x.request), name(x.reason), x.usage.completion_tokens);
}

}  // namespace troupe
