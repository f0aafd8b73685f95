#include "tools/serve/api_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tools/troupe/json_fields.h"

namespace troupe::serve {
namespace {

namespace json = boost::json;
using tools::Field;

const std::string kNoPlace;

ApiError from_field(const Error& error, std::string_view key) { return bad_request(error.what, std::string(key)); }

// Fields that say something about the client or its account, and nothing about the answer.
constexpr std::array<std::string_view, 7> kIgnored = {
    "user", "store", "metadata", "service_tier", "safety_identifier", "prompt_cache_key", "add_generation_prompt"};

ApiResult<json::object> parse_object(std::string_view body) {
  auto parsed = tools::parse_json(body, kNoPlace);
  if (!parsed) return bad_request("the body is " + parsed.error().what);
  if (!parsed.value().is_object())
    return bad_request(fmt::format("the body must be a JSON object, not {}", tools::kind_name(parsed.value())));
  return std::move(parsed.value().get_object());
}

// read(name, value, field) for each field that is not null, up to the first error.
template <class F>
ApiResult<void> read_fields(const json::object& object, F&& read) {
  for (const json::key_value_pair& item : object) {
    const std::string_view key(item.key().data(), item.key().size());
    if (item.value().is_null()) continue;
    if (Result<void> done = read(key, item.value(), Field{kNoPlace, std::string(key)}); !done) return from_field(done.error(), key);
  }
  return BOOST_OUTCOME_V2_NAMESPACE::success();
}

// Text, or OpenAI's list of parts of which only texts are taken.
Result<std::string> to_content(const json::value& v, const Field& field) {
  if (v.is_string()) return std::string(v.get_string());
  if (!v.is_array()) return field.wrong("a string or an array of text parts", v);
  std::string out;
  for (std::size_t i = 0; i < v.get_array().size(); ++i) {
    const json::value& part = v.get_array()[i];
    const Field here = field.at(i);
    if (!part.is_object()) return here.wrong("an object", part);
    const json::value* type = part.get_object().if_contains("type");
    const json::value* text = part.get_object().if_contains("text");
    if (type == nullptr || !type->is_string() || type->get_string() != "text")
      return here.error("only parts of type \"text\" are understood");
    if (text == nullptr) return here.error("has no \"text\"");
    TROUPE_TRY(auto s, tools::to_string(*text, here.at("text")));
    out += s;
  }
  return out;
}

Result<ApiMessage> to_message(const json::value& v, const Field& field) {
  if (!v.is_object()) return field.wrong("an object", v);
  ApiMessage out;
  bool content = false;
  for (const auto& [key, value] : v.get_object()) {
    if (value.is_null() || key == "name") continue;
    if (key == "role") {
      TROUPE_TRY(out.role, tools::to_string(value, field.at(key)));
    } else if (key == "content") {
      TROUPE_TRY(out.content, to_content(value, field.at(key)));
      content = true;
    } else {
      return field.at(key).error("not understood; a message has \"role\" and \"content\"");
    }
  }
  if (out.role == "developer") out.role = "system";
  if (out.role != "system" && out.role != "user" && out.role != "assistant") {
    return field.at("role").error(fmt::format("must be system, user or assistant, and is \"{}\"", out.role));
  }
  if (!content) return field.error("has no \"content\"");
  return out;
}

Result<std::vector<ApiMessage>> to_messages(const json::value& v, const Field& field) {
  if (!v.is_array()) return field.wrong("an array of messages", v);
  if (v.get_array().empty()) return field.error("is empty; give at least one message");
  std::vector<ApiMessage> out;
  for (std::size_t i = 0; i < v.get_array().size(); ++i) {
    TROUPE_TRY(auto message, to_message(v.get_array()[i], field.at(i)));
    out.push_back(std::move(message));
  }
  return out;
}

// A text, a list of ids, or a list of either.
Result<std::vector<ApiPrompt>> to_prompts(const json::value& v, const Field& field) {
  if (v.is_string()) return std::vector<ApiPrompt>{std::string(v.get_string())};
  if (!v.is_array()) return field.wrong("a string, an array of ids, or an array of those", v);
  const json::array& items = v.get_array();
  if (items.empty()) return field.error("is empty; give at least one");
  if (items[0].is_number()) {
    TROUPE_TRY(auto ids, tools::to_ids(v, field));
    return std::vector<ApiPrompt>{std::move(ids)};
  }
  if (items.size() > GenerateBody::kMaxChoices)
    return field.error(fmt::format("has {} entries; at most {} are taken", items.size(), GenerateBody::kMaxChoices));
  std::vector<ApiPrompt> out;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (items[i].is_string()) {
      out.emplace_back(std::string(items[i].get_string()));
    } else {
      TROUPE_TRY(auto ids, tools::to_ids(items[i], field.at(i)));
      out.emplace_back(std::move(ids));
    }
  }
  return out;
}

Result<void> read_stream_options(const json::value& v, const Field& field, GenerateBody& out) {
  if (!v.is_object()) return field.wrong("an object", v);
  for (const auto& [key, value] : v.get_object()) {
    if (value.is_null()) continue;
    if (key == "include_usage") {
      TROUPE_TRY(out.include_usage, tools::to_bool(value, field.at(key)));
    } else if (key == "continuous_usage_stats") {
      TROUPE_TRY(out.continuous_usage, tools::to_bool(value, field.at(key)));
    } else if (key != "include_obfuscation") {
      return field.at(key).error("unknown field; stream_options has \"include_usage\"");
    }
  }
  return success();
}

// What only one value of can be served: the one that asks for nothing.
Result<bool> read_unsupported(std::string_view key, const json::value& v, const Field& field) {
  if (key == "response_format") {
    const json::value* type = v.is_object() ? v.get_object().if_contains("type") : nullptr;
    if (type == nullptr || *type != "text") return field.error("only {\"type\": \"text\"} is served");
  } else if (key == "tools" || key == "functions" || key == "modalities" || key == "suffix") {
    const bool text_only = key == "modalities" && v == json::array{"text"};
    const bool none = (v.is_array() && v.get_array().empty()) || (v.is_string() && v.get_string().empty());
    if (!text_only && !none) return field.error("is not served; leave it out");
  } else if (key == "tool_choice" || key == "function_call") {
    if (v != "none" && v != "auto") return field.error("no tools are served; leave it out");
  } else if (key == "prompt_logprobs") {
    return field.error("log-probabilities of a prompt are not served; leave it out");
  } else if (key != "parallel_tool_calls") {
    return false;
  }
  return true;
}

// The spelling of logprobs differs between the two: a count, or a switch and a count.
struct Logprobs {
  bool on = false;
  std::optional<std::uint32_t> top;
};

Result<bool> read_shape(std::string_view key, const json::value& v, const Field& field, GenerateBody& out, Logprobs& logprobs) {
  const bool chat = out.api == Api::chat;
  if (key == "model") {
    TROUPE_TRY(out.model, tools::to_string(v, field));
  } else if (key == "messages" && chat) {
    TROUPE_TRY(out.messages, to_messages(v, field));
  } else if (key == "prompt" && !chat) {
    TROUPE_TRY(out.prompts, to_prompts(v, field));
  } else if (key == "n" || (key == "best_of" && !chat)) {
    TROUPE_TRY(auto n, tools::to_u32(v, field));
    if (n == 0 || n > GenerateBody::kMaxChoices)
      return field.error(fmt::format("must be between 1 and {}, and is {}", GenerateBody::kMaxChoices, n));
    if (key == "best_of" && n != 1) return field.error("is not served; ask for n answers");
    if (key == "n") out.n = n;
  } else if (key == "stream") {
    TROUPE_TRY(out.stream, tools::to_bool(v, field));
  } else if (key == "stream_options") {
    TROUPE_TRY(read_stream_options(v, field, out));
  } else if (key == "echo" && !chat) {
    TROUPE_TRY(out.echo, tools::to_bool(v, field));
  } else if (key == "logprobs" && chat) {
    TROUPE_TRY(logprobs.on, tools::to_bool(v, field));
  } else if (key == "top_logprobs" && chat) {
    TROUPE_TRY(logprobs.top, tools::to_u32(v, field));
  } else if (key == "max_completion_tokens" && chat) {
    TROUPE_TRY(out.request.stop.max_tokens, tools::to_u32(v, field));
    out.all_that_fits = false;
  } else {
    return false;
  }
  return true;
}

Result<void> read_generate_field(std::string_view key, const json::value& v, const Field& field, GenerateBody& out, Logprobs& logprobs) {
  if (std::find(kIgnored.begin(), kIgnored.end(), key) != kIgnored.end()) return success();
  TROUPE_TRY(bool known, read_shape(key, v, field, out, logprobs));
  if (known) return success();
  TROUPE_TRY(known, read_unsupported(key, v, field));
  if (known) return success();
  if (key == "top_k" && v == -1) return success();  // vLLM's way to say that it is off
  if (key == "max_tokens") out.all_that_fits = false;
  if (key != "logprobs" || out.api == Api::completions) {
    TROUPE_TRY(known, tools::read_sampling(key, v, field, out.request.sampling));
    if (known) return success();
  }
  if (key != "think") {
    TROUPE_TRY(known, tools::read_stop(key, v, field, out.request));
    if (known) return success();
  }
  return field.error("unknown field; it would change nothing");
}

ApiResult<void> check(const GenerateBody& body, const Logprobs& logprobs) {
  if (body.api == Api::chat) {
    if (body.messages.empty()) return bad_request("field \"messages\": is missing", "messages");
    if (logprobs.top && !logprobs.on) return bad_request("field \"top_logprobs\": needs \"logprobs\": true", "top_logprobs");
  } else {
    if (body.prompts.empty()) return bad_request("field \"prompt\": is missing", "prompt");
    if (body.prompts.size() * body.n > GenerateBody::kMaxChoices) {
      return bad_request(fmt::format("{} prompts with n {} are {} answers; at most {} are given to a request", body.prompts.size(), body.n,
                                     body.prompts.size() * body.n, GenerateBody::kMaxChoices),
                         "n");
    }
    if (body.echo && body.request.sampling.logprobs) {
      return bad_request("field \"echo\": log-probabilities of a prompt are not served; ask for echo or logprobs", "echo");
    }
  }
  if ((body.include_usage || body.continuous_usage) && !body.stream) {
    return bad_request("field \"stream_options\": needs \"stream\": true", "stream_options");
  }
  return BOOST_OUTCOME_V2_NAMESPACE::success();
}

}  // namespace

ApiResult<GenerateBody> parse_generate(Api api, std::string_view text) {
  TROUPE_TRY(auto object, parse_object(text));
  GenerateBody out;
  out.api = api;
  out.request.sampling.temperature = 1;
  out.all_that_fits = api == Api::chat;
  Logprobs logprobs;
  TROUPE_TRY(read_fields(object, [&](std::string_view key, const json::value& value, const Field& field) {
    return read_generate_field(key, value, field, out, logprobs);
  }));
  TROUPE_TRY(check(out, logprobs));
  if (logprobs.on) out.request.sampling.logprobs = logprobs.top.value_or(0);
  return out;
}

ApiResult<TokenizeBody> parse_tokenize(std::string_view text) {
  TROUPE_TRY(auto object, parse_object(text));
  TokenizeBody out;
  int inputs = 0;
  TROUPE_TRY(read_fields(object, [&](std::string_view key, const json::value& value, const Field& field) -> Result<void> {
    if (key == "model") {
      TROUPE_TRY(out.model, tools::to_string(value, field));
    } else if (key == "prompt") {
      ++inputs;
      TROUPE_TRY(out.input, tools::to_string(value, field));
    } else if (key == "messages") {
      ++inputs;
      TROUPE_TRY(out.input, to_messages(value, field));
    } else if (key == "add_special_tokens") {
      TROUPE_TRY(out.add_special_tokens, tools::to_bool(value, field));
    } else if (key != "add_generation_prompt") {
      return field.error("unknown field");
    }
    return success();
  }));
  if (inputs != 1) return bad_request("give exactly one of \"prompt\" and \"messages\"", "prompt");
  return out;
}

ApiResult<DetokenizeBody> parse_detokenize(std::string_view text) {
  TROUPE_TRY(auto object, parse_object(text));
  DetokenizeBody out;
  bool tokens = false;
  TROUPE_TRY(read_fields(object, [&](std::string_view key, const json::value& value, const Field& field) -> Result<void> {
    if (key == "model") {
      TROUPE_TRY(out.model, tools::to_string(value, field));
    } else if (key == "tokens") {
      tokens = true;
      TROUPE_TRY(out.tokens, tools::to_ids(value, field));
    } else {
      return field.error("unknown field");
    }
    return success();
  }));
  if (!tokens) return bad_request("field \"tokens\": is missing", "tokens");
  return out;
}

ApiResult<LoraBody> parse_lora(std::string_view text) {
  TROUPE_TRY(auto object, parse_object(text));
  LoraBody out;
  TROUPE_TRY(read_fields(object, [&](std::string_view key, const json::value& value, const Field& field) -> Result<void> {
    if (key == "lora_name") {
      TROUPE_TRY(out.name, tools::to_string(value, field));
    } else if (key == "lora_path") {
      TROUPE_TRY(out.path, tools::to_string(value, field));
    } else if (key != "load_inplace" && key != "lora_int_id") {
      return field.error("unknown field");
    }
    return success();
  }));
  if (out.name.empty()) return bad_request("field \"lora_name\": is missing", "lora_name");
  return out;
}

ApiResult<ReplicaBody> parse_replica(std::string_view text) {
  TROUPE_TRY(auto object, parse_object(text));
  ReplicaBody out;
  bool named = false;
  TROUPE_TRY(read_fields(object, [&](std::string_view key, const json::value& value, const Field& field) -> Result<void> {
    if (key != "replica") return field.error("unknown field");
    named = true;
    if (value.is_string()) {
      TROUPE_TRY(out.name, tools::to_string(value, field));
      return out.name.empty() ? field.error("is empty") : Result<void>(success());
    }
    TROUPE_TRY(out.index, tools::to_u32(value, field));
    return success();
  }));
  if (!named) return bad_request("field \"replica\": is missing; it is a name or an index of /replicas", "replica");
  return out;
}

}  // namespace troupe::serve
