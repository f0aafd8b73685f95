// One line of a request file (`troupe run`, `troupe verify`): a JSON object -> RequestLine.
//
// Only the form is checked here: JSON, field names, types and ranges of integers. What a value may be is the runtime's
// to say (actors/dispatcher). Every error is bad_request and begins with the place: `file:line: field "x": ...`.
// Pure functions: any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "messages/error.h"
#include "messages/lora.h"
#include "messages/request.h"

namespace troupe::tools {

struct PromptMessage {
  std::string role;
  std::string content;
};
using PromptText = std::string;
using PromptIds = std::vector<Token>;
using PromptMessages = std::vector<PromptMessage>;

// A request, or a LoRA command: {"lora": {"load": {"name": "pirate", "dir": "adapters/pirate", "slot": 2}}, "at_ms": 500} where "slot"
// may be left out, or {"lora": {"unload": "pirate"}}, {"lora": {"rotate": "pirate"}}, {"lora": {"list": true}}, or {"lora": {"promote":
// {"name": "pirate", "peer": "host:0"}}} with "adapter", its name there, if that is another; beside them "max_wait_ms", "preempt": true,
// "replica": "host:1" for one of several, "roll_back": true, and an "id" for the line of its answer.
struct RequestLine {
  std::string place;  // "file:line"
  std::string id;     // as JSON text: "7" and "\"7\"" are two ids
  std::variant<PromptText, PromptIds, PromptMessages> prompt;
  std::optional<LoraCommand> lora;                   // then there is neither prompt nor request
  Request request;                                   // client and prompt are left for the caller
  std::int64_t arrive_ms = 0;                        // at_ms of a command; after the start of the run
  std::optional<std::int64_t> cancel_ms;             // after its submission
  std::optional<std::uint32_t> cancel_after_tokens;  // cancel once that many tokens have arrived
};

// A line that could not be used. `id` is JSON text: the line's, or "null".
struct LineError {
  std::string id = "null";
  Error error;
};

std::variant<RequestLine, LineError> parse_request_line(std::string_view line, std::string place);

// A JSON array of ids, or an object with the one member "ids". Error: bad_request.
Result<std::vector<Token>> parse_ids(std::string_view json, const std::string& place);

// "1,2,3" -> ids. Error: bad_request.
Result<std::vector<Token>> parse_id_list(std::string_view text);

}  // namespace troupe::tools
