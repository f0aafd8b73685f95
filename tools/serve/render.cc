#include "tools/serve/render.h"

#include <fmt/format.h>
#include <boost/json.hpp>

#include <cmath>
#include <utility>

#include "device/models/utf8.h"

namespace troupe::serve {
namespace {

namespace json = boost::json;

// JSON has no infinity.
double finite(float logprob) { return std::isfinite(logprob) ? static_cast<double>(logprob) : -9999.0; }

std::string bytes_of(const device::TextSide& text, Token id) {
  auto bytes = text.decode(std::span(&id, 1));
  return bytes ? std::move(bytes.value()) : std::string();
}

// As the completions API shows it: what is no text is written out, so that two tokens never look the same.
std::string spelled(std::string_view bytes) {
  if (!device::find_invalid_utf8(bytes)) return std::string(bytes);
  std::string out = "bytes:";
  for (const char c : bytes) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return out;
}

std::int64_t characters(std::string_view utf8) {
  std::int64_t n = 0;
  for (const char c : utf8) n += (static_cast<unsigned char>(c) & 0xc0) != 0x80 ? 1 : 0;
  return n;
}

json::object chat_entry(const device::TextSide& text, Token id, float logprob) {
  const std::string bytes = bytes_of(text, id);
  json::array list;
  for (const char c : bytes) list.push_back(static_cast<unsigned char>(c));
  return {{"token", to_utf8(bytes)}, {"logprob", finite(logprob)}, {"bytes", std::move(list)}};
}

json::object no_lists() {
  return {{"tokens", json::array{}}, {"token_logprobs", json::array{}}, {"top_logprobs", json::array{}}, {"text_offset", json::array{}}};
}

const char* reason_name(FinishReason reason) { return reason == FinishReason::length ? "length" : name(reason); }

}  // namespace

std::string sse(std::string_view data) { return fmt::format("data: {}\n\n", data); }
std::string sse_error(const ApiError& error) { return sse(to_body(error)); }

Render::Render(RenderOptions options, const device::TextSide& text)
    : options_(std::move(options)), text_(text), choices_(options_.choices) {
  for (std::uint32_t i = 0; i < options_.choices; ++i) {
    Choice& choice = choices_[i];
    choice.lists = no_lists();
    choice.text = echo_of(i);
    choice.offset = characters(choice.text);
  }
}

std::string_view Render::echo_of(std::uint32_t choice) const {
  return options_.echo.empty() ? std::string_view() : std::string_view(options_.echo[choice / options_.n]);
}

ApiResult<void> Render::add(std::span<const Piece> pieces, std::string& out) {
  for (const Piece& piece : pieces) {
    Choice& choice = choices_[piece.choice];
    if (piece.finish && piece.finish->reason == FinishReason::error) return from_runtime(piece.finish->error);
    if (piece.finish && piece.finish->reason == FinishReason::deadline) {
      return ApiError{504, "timeout_error", "the time that the server gives a request was over before the answer was complete", "",
                      "timeout"};
    }
    take(choice, piece);
    if (piece.finish) {
      choice.finish = piece.finish->reason;
      count(piece);
      ++ended_;
    }
    if (options_.stream && (piece.finish || !choice.text.empty() || options_.logprobs))
      add_event(piece.choice, choice, piece.finish ? &piece : nullptr, out);
  }
  if (options_.stream && !pieces.empty() && ended()) {
    if (options_.include_usage) {
      json::object last = head(true);
      last["choices"] = json::array{};
      last["usage"] = usage();
      out += sse(json::serialize(last));
    }
    out += sse("[DONE]");
  }
  return BOOST_OUTCOME_V2_NAMESPACE::success();
}

void Render::take(Choice& choice, const Piece& piece) {
  choice.text += piece.text;
  if (!piece.token) return;
  ++choice.tokens;
  if (!options_.logprobs || std::isnan(piece.logprob)) return;
  if (options_.api == Api::chat) {
    json::object entry = chat_entry(text_, *piece.token, piece.logprob);
    json::array best;
    for (const TokenLogprob& b : piece.best) best.push_back(chat_entry(text_, b.id, b.logprob));
    entry["top_logprobs"] = std::move(best);
    choice.entries.push_back(std::move(entry));
    return;
  }
  const std::string token = spelled(bytes_of(text_, *piece.token));
  json::object best;
  for (const TokenLogprob& b : piece.best) best[spelled(bytes_of(text_, b.id))] = finite(b.logprob);
  best[token] = finite(piece.logprob);
  choice.lists["tokens"].as_array().push_back(json::string(token));
  choice.lists["token_logprobs"].as_array().push_back(finite(piece.logprob));
  choice.lists["top_logprobs"].as_array().push_back(std::move(best));
  choice.lists["text_offset"].as_array().push_back(choice.offset);
  choice.offset += characters(token);
}

void Render::count(const Piece& piece) {
  completion_tokens_ += piece.finish->usage.completion_tokens;
  if (piece.choice % options_.n == 0) cached_tokens_ += piece.finish->usage.cached_tokens;
}

json::value Render::logprobs(Choice& choice) const {
  if (!options_.logprobs) return nullptr;
  if (options_.api == Api::chat) return json::object{{"content", std::exchange(choice.entries, {})}, {"refusal", nullptr}};
  return std::exchange(choice.lists, no_lists());
}

json::object Render::head(bool chunk) const {
  const char* object = options_.api == Api::completions ? "text_completion" : chunk ? "chat.completion.chunk" : "chat.completion";
  return {{"id", options_.id}, {"object", object}, {"created", options_.created}, {"model", options_.model}};
}

json::object Render::usage() const {
  return {{"prompt_tokens", options_.prompt_tokens},
          {"completion_tokens", completion_tokens_},
          {"total_tokens", options_.prompt_tokens + completion_tokens_},
          {"prompt_tokens_details", json::object{{"cached_tokens", cached_tokens_}}}};
}

void Render::add_event(std::uint32_t index, Choice& choice, const Piece* end, std::string& out) {
  json::object item{{"index", index}};
  if (options_.api == Api::chat) {
    json::object delta;
    if (!choice.begun) delta["role"] = "assistant";
    if (!choice.begun || !choice.text.empty()) delta["content"] = std::exchange(choice.text, {});
    item["delta"] = std::move(delta);
  } else {
    item["text"] = std::exchange(choice.text, {});
  }
  choice.begun = true;
  item["logprobs"] = logprobs(choice);
  item["finish_reason"] = end != nullptr ? json::value(reason_name(end->finish->reason)) : json::value(nullptr);
  json::object event = head(true);
  event["choices"] = json::array{std::move(item)};
  if (options_.continuous_usage) {
    std::uint64_t tokens = 0;
    for (const Choice& c : choices_) tokens += c.tokens;
    event["usage"] = json::object{
        {"prompt_tokens", options_.prompt_tokens}, {"completion_tokens", tokens}, {"total_tokens", options_.prompt_tokens + tokens}};
  } else if (options_.include_usage) {
    event["usage"] = nullptr;
  }
  out += sse(json::serialize(event));
}

std::string Render::body() {
  json::array list;
  for (std::uint32_t i = 0; i < options_.choices; ++i) {
    Choice& choice = choices_[i];
    json::object item{{"index", i}};
    if (options_.api == Api::chat) {
      item["message"] = json::object{{"role", "assistant"}, {"content", choice.text}, {"refusal", nullptr}};
    } else {
      item["text"] = choice.text;
    }
    item["logprobs"] = logprobs(choice);
    item["finish_reason"] = choice.finish ? json::value(reason_name(*choice.finish)) : json::value(nullptr);
    list.push_back(std::move(item));
  }
  json::object out = head(false);
  out["choices"] = std::move(list);
  out["usage"] = usage();
  return json::serialize(out);
}

}  // namespace troupe::serve
