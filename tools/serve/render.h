// From pieces of an answer to what the client reads: one JSON body, or server-sent events. Shapes are OpenAI's
// (text_completion, chat.completion and their chunks), with vLLM's habits where OpenAI's are silent: -9999 for the
// log-probability of what cannot happen, `continuous_usage_stats`.
//
// One answer, one thread.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/models/load.h"
#include "tools/serve/api_error.h"
#include "tools/serve/api_request.h"
#include "tools/serve/call.h"

namespace troupe::serve {

struct RenderOptions {
  Api api = Api::completions;
  std::string id;            // "cmpl-…"
  std::int64_t created = 0;  // Unix time
  std::string model;
  std::uint32_t choices = 1;        // prompts times n
  std::uint32_t n = 1;              // choices of a prompt, which stand together; their usage counts the prompt once
  std::uint64_t prompt_tokens = 0;  // of all prompts, each once
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;
  bool logprobs = false;
  std::vector<std::string> echo;  // by prompt: its text, to stand in front; empty: none
};

class Render {
 public:
  Render(RenderOptions options, const device::TextSide& text);

  // Takes the next pieces in. Streaming: appends the events that they make to `out`, and, once every choice has ended,
  // the last ones. Error: a request failed. `out` is then what can still be said in a stream that has begun.
  ApiResult<void> add(std::span<const Piece> pieces, std::string& out);
  bool ended() const { return ended_ == options_.choices; }
  // Not streaming, ended: the whole answer. Once.
  std::string body();

 private:
  struct Choice {
    std::string text;
    boost::json::array entries;  // chat: logprobs.content
    boost::json::object lists;   // completions: logprobs
    std::int64_t offset = 0;     // completions: of the next token's text, in characters
    std::uint32_t tokens = 0;
    std::optional<FinishReason> finish;
    bool begun = false;  // streaming: its first event is out
  };
  void take(Choice& choice, const Piece& piece);
  void count(const Piece& piece);
  void add_event(std::uint32_t index, Choice& choice, const Piece* end, std::string& out);
  boost::json::value logprobs(Choice& choice) const;
  boost::json::object head(bool chunk) const;
  boost::json::object usage() const;
  std::string_view echo_of(std::uint32_t choice) const;

  RenderOptions options_;
  const device::TextSide& text_;
  std::vector<Choice> choices_;
  std::uint32_t ended_ = 0;
  std::uint64_t cached_tokens_ = 0;
  std::uint64_t completion_tokens_ = 0;
};

// One event: "data: …\n\n".
std::string sse(std::string_view data);
// An error in a stream that has begun.
std::string sse_error(const ApiError& error);

}  // namespace troupe::serve
