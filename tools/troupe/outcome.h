// What became of a request that the program ran. A plain value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "messages/error.h"
#include "messages/lora.h"
#include "messages/request.h"

namespace troupe::tools {

struct TokenBest {
  float logprob = 0;
  std::vector<TokenLogprob> best;
};

// What became of a request. error.code none: it ended as `finish` says.
struct RequestOutcome {
  std::string id = "null";  // JSON text
  std::string place;
  std::vector<Token> token_ids;
  std::string text;
  std::vector<TokenBest> logprobs;  // one per token, if asked for
  FinishReason finish = FinishReason::error;
  Usage usage;
  std::uint64_t seed = 0;
  std::optional<LoraAck> lora;  // of a LoRA command, with no tokens
  bool sampled = false;         // chosen at random: the seed matters
  Error error;
};

}  // namespace troupe::tools
