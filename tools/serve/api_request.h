// Bodies of `troupe serve`'s endpoints -> values. Only the form is checked here: JSON, names, types. What a value may
// be is the runtime's to say.
//
// Names, meaning and defaults are those of OpenAI's API, with vLLM's extensions (top_k, min_p, repetition_penalty,
// min_tokens, stop_token_ids, ignore_eos). A field with the value null counts as absent. A field that is not known is
// an error, so that nothing that a client asks for is silently left out; fields that change no token (`user`, `store`, …)
// are accepted. Errors: 400, with the field as `param`. Pure functions: any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "messages/request.h"
#include "tools/serve/api_error.h"

namespace troupe::serve {

enum class Api : std::uint8_t { completions, chat };

struct ApiMessage {
  std::string role;
  std::string content;
};
using ApiPrompt = std::variant<std::string, std::vector<Token>>;

// The body of /v1/completions or /v1/chat/completions.
struct GenerateBody {
  // Prompts times n; each is a request of the runtime.
  static constexpr std::uint32_t kMaxChoices = 128;

  Api api = Api::completions;
  std::string model;                 // empty: not named
  std::vector<ApiPrompt> prompts;    // completions: at least one
  std::vector<ApiMessage> messages;  // chat: at least one
  Request request;                   // client, prompt and adapter are left for the caller
  bool all_that_fits = false;        // max_tokens was not named, and is to be what the context leaves
  std::uint32_t n = 1;
  bool echo = false;
  bool stream = false;
  bool include_usage = false;     // the stream's last chunk has the usage
  bool continuous_usage = false;  // and so has every other
};
ApiResult<GenerateBody> parse_generate(Api api, std::string_view body);

// The body of /tokenize: a text, or a chat that is rendered as for an answer.
struct TokenizeBody {
  std::string model;
  std::variant<std::string, std::vector<ApiMessage>> input;
  bool add_special_tokens = true;  // what the model wants in front of a prompt
};
ApiResult<TokenizeBody> parse_tokenize(std::string_view body);

struct DetokenizeBody {
  std::string model;
  std::vector<Token> tokens;
};
ApiResult<DetokenizeBody> parse_detokenize(std::string_view body);

// The body of /v1/load_lora_adapter and /v1/unload_lora_adapter.
struct LoraBody {
  std::string name;
  std::string path;  // load: a folder
};
ApiResult<LoraBody> parse_lora(std::string_view body);

// The body of /replicas/drain and /replicas/undrain: {"replica": "host:0"}, or its index.
struct ReplicaBody {
  std::string name;  // empty: the index counts
  std::uint32_t index = 0;
};
ApiResult<ReplicaBody> parse_replica(std::string_view body);

}  // namespace troupe::serve
