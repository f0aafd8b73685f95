// What a client submits, and what it gets back.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "messages/error.h"
#include "messages/feed.h"
#include "messages/ids.h"
#include "messages/inspect_std.h"

namespace troupe {

struct TokenBias {
  Token id = 0;
  float bias = 0;
};

// Names and meaning as in vLLM. Temperature 0 = greedy (argmax after penalties and bias).
struct SamplingParams {
  float temperature = 0;         // >= 0
  std::uint32_t top_k = 0;       // 0 = off
  float top_p = 1;               // (0, 1]
  float min_p = 0;               // [0, 1]
  float repetition_penalty = 1;  // > 0; over prompt and output
  float presence_penalty = 0;    // [-2, 2]; over output
  float frequency_penalty = 0;   // [-2, 2]; over output
  std::vector<TokenBias> logit_bias{};
  Optional<std::uint64_t> seed{};      // none: the runtime draws one and reports it in Finish
  Optional<std::uint32_t> logprobs{};  // the chosen token's, and that many best (at most kMaxLogprobs)
  static constexpr std::uint32_t kMaxLogprobs = ReadLogprobs::kMaxBest;

  // A longer list of biases is not brought to the device with every row: the host samples.
  static constexpr std::size_t kMaxDeviceBiases = 300;

  bool may_sample_on_device() const { return logit_bias.size() <= kMaxDeviceBiases; }
  // Whether the ids before a token bear on its choice.
  bool penalizes() const { return repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0; }
  // Whether a token has to be sampled. False: the device's masked argmax is the answer.
  bool needs_logits() const { return temperature > 0 || penalizes() || !logit_bias.empty() || logprobs.has_value(); }
};

struct StopConditions {
  std::uint32_t max_tokens = 16;
  std::uint32_t min_tokens = 0;  // until then, end-of-sequence and stop_token_ids are barred
  std::vector<std::string> stop;
  std::vector<Token> stop_token_ids;
  bool ignore_eos = false;
};

// Once `close` was generated, the two ids are barred (a closed thinking block must not be opened again).
struct Think {
  Token close = 0;
  Token bar_a = 0;
  Token bar_b = 0;
};

struct Request {
  std::uint64_t client = 0;  // see RequestId
  std::vector<Token> prompt;
  SamplingParams sampling;
  StopConditions stop;
  Optional<Think> think;
  Optional<TimeNs> deadline;  // nanoseconds after submission, over its whole life
  std::string adapter{};      // its name; "" = the one that requests without a name get: the base model, or the last Rotate's
  void clear() { *this = {}; }
};

enum class FinishReason : std::uint8_t { stop, length, cancelled, deadline, error };

struct Usage {
  std::uint32_t prompt_tokens = 0;
  std::uint32_t completion_tokens = 0;
  std::uint32_t cached_tokens = 0;  // of the prompt, found in the prefix cache
};

struct TokenLogprob {
  Token id = 0;
  float logprob = 0;
};

// One generated token. `index` counts the request's output from 0; each (request, index) is delivered once (R5).
// Text lags behind tokens: bytes that may still become a stop string or are half a character are held back.
struct TokenEvent {
  RequestId request;
  std::uint32_t attempt = 0;  // how often the request had been moved to another replica
  std::uint32_t index = 0;
  Token id = 0;
  std::uint32_t text_begin = 0;  // in TokenBatch::text
  std::uint32_t text_size = 0;
  std::uint32_t best_begin = 0;  // in TokenBatch::best
  std::uint32_t best_size = 0;
  float logprob = std::numeric_limits<float>::quiet_NaN();  // NaN: not asked for
};

// The one terminal event of a request.
struct Finish {
  RequestId request;
  FinishReason reason = FinishReason::stop;
  Usage usage;
  std::uint64_t seed = 0;        // the seed in force, given or drawn
  std::uint32_t text_begin = 0;  // text that was held back and now is final
  std::uint32_t text_size = 0;
  Error error;                // reason error: why
  std::uint32_t attempt = 0;  // as in TokenEvent
  // The request went on, after a failure, on a replica of another arithmetic: an undisturbed stream may be another one (R1).
  bool other_arithmetic = false;
};

// What one step gave the clients of one delivery thread.
struct TokenBatch {
  std::vector<TokenEvent> events;
  std::vector<Finish> finishes;
  std::string text;
  std::vector<TokenLogprob> best;
  void clear() {
    events.clear();
    finishes.clear();
    text.clear();
    best.clear();
  }
};

enum class CancelOutcome : std::uint8_t { cancelled_waiting, cancelled_running, already_finished, not_found };

template <class I>
auto inspect(I& f, TokenBias& x) {
  return f(x.id, x.bias);
}
template <class I>
auto inspect(I& f, SamplingParams& x) {
  return f(x.temperature, x.top_k, x.top_p, x.min_p, x.repetition_penalty, x.presence_penalty, x.frequency_penalty, x.logit_bias, x.seed,
           x.logprobs);
}
template <class I>
auto inspect(I& f, Request& x) {
  return f(x.client, x.prompt, x.sampling, x.stop, x.think, x.deadline, x.adapter);
}
template <class I>
auto inspect(I& f, Think& x) {
  return f(x.close, x.bar_a, x.bar_b);
}
template <class I>
auto inspect(I& f, StopConditions& x) {
  return f(x.max_tokens, x.min_tokens, x.stop, x.stop_token_ids, x.ignore_eos);
}
template <class I>
auto inspect(I& f, Usage& x) {
  return f(x.prompt_tokens, x.completion_tokens, x.cached_tokens);
}
template <class I>
auto inspect(I& f, TokenLogprob& x) {
  return f(x.id, x.logprob);
}
template <class I>
auto inspect(I& f, TokenEvent& x) {
  return f(x.request, x.attempt, x.index, x.id, x.text_begin, x.text_size, x.best_begin, x.best_size, x.logprob);
}
template <class I>
auto inspect(I& f, Finish& x) {
  return f(x.request, x.reason, x.usage, x.seed, x.text_begin, x.text_size, x.error, x.attempt, x.other_arithmetic);
}
template <class I>
auto inspect(I& f, TokenBatch& x) {
  return f(x.events, x.finishes, x.text, x.best);
}

const char* name(FinishReason reason);
const char* name(CancelOutcome outcome);
std::string label(const Request& x);     // "Request{7, prompt=12, max=64}"
std::string label(const TokenBatch& x);  // "Tokens{n=4, finished=1}"
std::string label(const Finish& x);      // "Finish{7#2, stop, 64 tokens}"

}  // namespace troupe
