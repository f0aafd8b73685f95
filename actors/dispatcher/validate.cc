#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/dispatcher/core.h"

namespace troupe::actors {
namespace {

Error bad(std::string what) { return Error{ErrorCode::bad_request, std::move(what)}; }
// What is looked through at every token of a request.
constexpr std::uint32_t kMaxStops = 64;
constexpr std::size_t kMaxStopBytes = 1024;
constexpr std::uint32_t kMaxStopIds = 256;

std::optional<Error> outside(Token id, const char* where, const ModelInfo& model) {
  if (id < model.vocab_size) return std::nullopt;
  return bad(fmt::format("{}: token id {} is outside the vocabulary (ids are 0 to {})", where, id, model.vocab_size - 1));
}

// Negated, so that a NaN is outside every range.
std::optional<Error> range(float x, const char* name, const char* limits, bool inside) {
  if (inside && std::isfinite(x)) return std::nullopt;
  return bad(fmt::format("{} is {}; it must be {}", name, x, limits));
}

std::optional<Error> check_sampling(const SamplingParams& s, const ModelInfo& model) {
  if (auto e = range(s.temperature, "temperature", "a number >= 0", s.temperature >= 0)) return e;
  if (auto e = range(s.top_p, "top_p", "above 0 and at most 1", s.top_p > 0 && s.top_p <= 1)) return e;
  if (auto e = range(s.min_p, "min_p", "between 0 and 1", s.min_p >= 0 && s.min_p <= 1)) return e;
  if (auto e = range(s.repetition_penalty, "repetition_penalty", "above 0", s.repetition_penalty > 0)) return e;
  const auto penalty = [](float x) { return x >= -2 && x <= 2; };
  if (auto e = range(s.presence_penalty, "presence_penalty", "between -2 and 2", penalty(s.presence_penalty))) return e;
  if (auto e = range(s.frequency_penalty, "frequency_penalty", "between -2 and 2", penalty(s.frequency_penalty))) return e;
  if (s.logit_bias.size() > model.vocab_size) {
    return bad(fmt::format("logit_bias has {} entries and the vocabulary {}: name each token once", s.logit_bias.size(), model.vocab_size));
  }
  for (const TokenBias& bias : s.logit_bias) {
    if (auto e = outside(bias.id, "logit_bias", model)) return e;
    if (!std::isfinite(bias.bias)) return bad(fmt::format("logit_bias of token {} is {}; it must be a finite number", bias.id, bias.bias));
  }
  if (s.logprobs && *s.logprobs > SamplingParams::kMaxLogprobs) {
    return bad(fmt::format("logprobs is {}; at most {} are given", *s.logprobs, SamplingParams::kMaxLogprobs));
  }
  const bool on_device = model.supports_device_sampling && s.may_sample_on_device();
  if (s.needs_logits() && !on_device && model.max_logits_rows == 0) {
    return Error{ErrorCode::unsupported,
                 "this model reads no logits back: only greedy requests without penalties, bias and logprobs run on it"};
  }
  return std::nullopt;
}

std::optional<Error> check_stop(const StopConditions& s, const ModelInfo& model) {
  if (s.max_tokens == 0) return bad("max_tokens is 0; ask for at least one token");
  if (s.min_tokens > s.max_tokens) {
    return bad(fmt::format("min_tokens is {} and max_tokens {}; min_tokens must not be larger", s.min_tokens, s.max_tokens));
  }
  if (s.stop.size() > kMaxStops) return bad(fmt::format("{} stop strings; at most {} are matched", s.stop.size(), kMaxStops));
  for (const std::string& stop : s.stop) {
    if (stop.empty()) return bad("a stop string is empty; leave it out");
    if (stop.size() > kMaxStopBytes) {
      return bad(fmt::format("a stop string has {} bytes; at most {} are matched", stop.size(), kMaxStopBytes));
    }
  }
  if (s.stop_token_ids.size() > kMaxStopIds) {
    return bad(fmt::format("{} stop_token_ids; at most {} are compared with", s.stop_token_ids.size(), kMaxStopIds));
  }
  for (Token id : s.stop_token_ids) {
    if (auto e = outside(id, "stop_token_ids", model)) return e;
  }
  return std::nullopt;
}

// Its length first: what comes may be of any.
std::optional<Error> check_prompt(const std::vector<Token>& prompt, const ModelInfo& model) {
  if (prompt.empty()) return bad("the prompt is empty; give at least one token");
  if (prompt.size() + 1 > model.context_length) {
    return bad(fmt::format("the prompt has {} tokens and the model's context {}: at most {} leave room for an answer", prompt.size(),
                           model.context_length, model.context_length - 1));
  }
  for (Token id : prompt) {
    if (auto e = outside(id, "prompt", model)) return e;
  }
  return std::nullopt;
}

// The last token is never fed back, so its position needs no KV.
std::optional<Error> check_room(const Request& r, const ModelInfo& model) {
  const std::uint64_t prompt = r.prompt.size();
  const std::uint64_t positions = std::min<std::uint64_t>(prompt + r.stop.max_tokens - 1, model.context_length);
  const std::uint64_t blocks = model.blocks_needed(positions);
  if (blocks > model.kv_blocks) {
    return bad(
        fmt::format("{} prompt tokens with max_tokens {} need {} KV blocks and the pool has {}: lower max_tokens, or give the "
                    "runtime more kv_blocks",
                    prompt, r.stop.max_tokens, blocks, model.kv_blocks));
  }
  return std::nullopt;
}

}  // namespace

Error validate(const Request& r, const ModelInfo& model) {
  if (auto e = check_prompt(r.prompt, model)) return *e;
  if (auto e = check_stop(r.stop, model)) return *e;
  if (auto e = check_sampling(r.sampling, model)) return *e;
  if (r.think) {
    for (Token id : {r.think->close, r.think->bar_a, r.think->bar_b}) {
      if (auto e = outside(id, "think", model)) return *e;
    }
  }
  if (r.deadline && *r.deadline <= 0) return bad("the deadline is not after the submission");
  if (!r.adapter.empty() && model.max_loras == 0) {
    return Error{ErrorCode::not_found, "the request names an adapter, and the model was loaded without room for any"};
  }
  if (auto e = check_room(r, model)) return *e;
  return {};
}

}  // namespace troupe::actors
