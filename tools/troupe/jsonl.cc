#include "tools/troupe/jsonl.h"

#include <boost/json.hpp>
#include <fmt/format.h>

#include <charconv>
#include <limits>

namespace troupe::tools {
namespace {

namespace json = boost::json;

constexpr std::uint32_t kMaxU32 = std::numeric_limits<std::uint32_t>::max();
constexpr std::int64_t kMaxMs = 1'000'000'000;  // about eleven days: still fits when counted in nanoseconds

const char* kind_name(const json::value& v) {
  switch (v.kind()) {
    case json::kind::null: return "null";
    case json::kind::bool_: return "a truth value";
    case json::kind::int64:
    case json::kind::uint64: return "an integer";
    case json::kind::double_: return "a number with a fraction";
    case json::kind::string: return "a string";
    case json::kind::array: return "an array";
    case json::kind::object: return "an object";
  }
  return "something else";
}

// Where a value stands; turns into the beginning of an error.
struct Field {
  const std::string& place;
  std::string name;

  Error error(const std::string& what) const { return {ErrorCode::bad_request, fmt::format("{}: field \"{}\": {}", place, name, what)}; }
  Error wrong(const char* wanted, const json::value& v) const { return error(fmt::format("must be {}, not {}", wanted, kind_name(v))); }
  Field at(std::size_t i) const { return {place, fmt::format("{}[{}]", name, i)}; }
  Field at(std::string_view key) const { return {place, fmt::format("{}.{}", name, key)}; }
};

Result<std::uint64_t> to_uint(const json::value& v, const Field& field, std::uint64_t max = kMaxU32) {
  std::uint64_t n = 0;
  if (v.is_uint64()) {
    n = v.get_uint64();
  } else if (v.is_int64()) {
    if (v.get_int64() < 0) return field.error(fmt::format("must not be negative, and is {}", v.get_int64()));
    n = static_cast<std::uint64_t>(v.get_int64());
  } else {
    return field.wrong("an integer", v);
  }
  if (n > max) return field.error(fmt::format("must be at most {}, and is {}", max, n));
  return n;
}

Result<std::uint32_t> to_u32(const json::value& v, const Field& field) {
  TROUPE_TRY(auto n, to_uint(v, field));
  return static_cast<std::uint32_t>(n);
}

Result<float> to_float(const json::value& v, const Field& field) {
  if (!v.is_number()) return field.wrong("a number", v);
  return v.to_number<float>();
}

Result<bool> to_bool(const json::value& v, const Field& field) {
  if (!v.is_bool()) return field.wrong("true or false", v);
  return v.get_bool();
}

Result<std::string> to_string(const json::value& v, const Field& field) {
  if (!v.is_string()) return field.wrong("a string", v);
  return std::string(v.get_string());
}

Result<std::vector<Token>> to_ids(const json::value& v, const Field& field) {
  if (!v.is_array()) return field.wrong("an array of ids", v);
  std::vector<Token> ids;
  ids.reserve(v.get_array().size());
  for (std::size_t i = 0; i < v.get_array().size(); ++i) {
    TROUPE_TRY(auto id, to_u32(v.get_array()[i], field.at(i)));
    ids.push_back(id);
  }
  return ids;
}

Result<std::vector<std::string>> to_strings(const json::value& v, const Field& field) {
  if (v.is_string()) return std::vector<std::string>{std::string(v.get_string())};
  if (!v.is_array()) return field.wrong("a string or an array of strings", v);
  std::vector<std::string> out;
  for (std::size_t i = 0; i < v.get_array().size(); ++i) {
    TROUPE_TRY(auto s, to_string(v.get_array()[i], field.at(i)));
    out.push_back(std::move(s));
  }
  return out;
}

Result<PromptMessages> to_messages(const json::value& v, const Field& field) {
  if (!v.is_array()) return field.wrong("an array of {\"role\", \"content\"}", v);
  PromptMessages out;
  for (std::size_t i = 0; i < v.get_array().size(); ++i) {
    const json::value& item = v.get_array()[i];
    const Field here = field.at(i);
    if (!item.is_object()) return here.wrong("an object", item);
    PromptMessage message;
    for (const auto& [key, value] : item.get_object()) {
      if (key == "role") {
        TROUPE_TRY(message.role, to_string(value, here.at(key)));
      } else if (key == "content") {
        TROUPE_TRY(message.content, to_string(value, here.at(key)));
      } else {
        return here.at(key).error("unknown field; a message has \"role\" and \"content\"");
      }
    }
    if (message.role.empty()) return here.error("has no \"role\"");
    out.push_back(std::move(message));
  }
  return out;
}

// {"42": -1.5, ...}: ids are keys, as in other servers' interfaces.
Result<std::vector<TokenBias>> to_bias(const json::value& v, const Field& field) {
  if (!v.is_object()) return field.wrong("an object of id: bias", v);
  std::vector<TokenBias> out;
  for (const auto& [key, value] : v.get_object()) {
    TokenBias bias;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), bias.id);
    if (error != std::errc{} || end != key.data() + key.size()) return field.at(key).error("the key must be a token id");
    TROUPE_TRY(bias.bias, to_float(value, field.at(key)));
    out.push_back(bias);
  }
  return out;
}

Result<Think> to_think(const json::value& v, const Field& field) {
  if (!v.is_object()) return field.wrong("{\"close\": id, \"bar\": [id, id]}", v);
  Think think;
  bool close = false, bar = false;
  for (const auto& [key, value] : v.get_object()) {
    if (key == "close") {
      TROUPE_TRY(think.close, to_u32(value, field.at(key)));
      close = true;
    } else if (key == "bar") {
      TROUPE_TRY(auto ids, to_ids(value, field.at(key)));
      if (ids.size() != 2) return field.at(key).error(fmt::format("must be two ids, and has {}", ids.size()));
      think.bar_a = ids[0];
      think.bar_b = ids[1];
      bar = true;
    } else {
      return field.at(key).error("unknown field; think has \"close\" and \"bar\"");
    }
  }
  if (!close || !bar) return field.error("needs both \"close\" and \"bar\"");
  return think;
}

Result<std::int64_t> to_ms(const json::value& v, const Field& field) {
  TROUPE_TRY(auto ms, to_uint(v, field, kMaxMs));
  return static_cast<std::int64_t>(ms);
}

Result<void> read_prompt(std::string_view key, const json::value& v, const Field& field, RequestLine& out) {
  if (key == "prompt") {
    TROUPE_TRY(out.prompt, to_string(v, field));
  } else if (key == "prompt_ids") {
    TROUPE_TRY(out.prompt, to_ids(v, field));
  } else {
    TROUPE_TRY(out.prompt, to_messages(v, field));
  }
  return success();
}

// False: no field of that name.
Result<bool> read_sampling(std::string_view key, const json::value& v, const Field& field, SamplingParams& out) {
  if (key == "temperature") {
    TROUPE_TRY(out.temperature, to_float(v, field));
  } else if (key == "top_k") {
    TROUPE_TRY(out.top_k, to_u32(v, field));
  } else if (key == "top_p") {
    TROUPE_TRY(out.top_p, to_float(v, field));
  } else if (key == "min_p") {
    TROUPE_TRY(out.min_p, to_float(v, field));
  } else if (key == "repetition_penalty") {
    TROUPE_TRY(out.repetition_penalty, to_float(v, field));
  } else if (key == "presence_penalty") {
    TROUPE_TRY(out.presence_penalty, to_float(v, field));
  } else if (key == "frequency_penalty") {
    TROUPE_TRY(out.frequency_penalty, to_float(v, field));
  } else if (key == "logit_bias") {
    TROUPE_TRY(out.logit_bias, to_bias(v, field));
  } else if (key == "seed") {
    TROUPE_TRY(auto seed, to_uint(v, field, std::numeric_limits<std::uint64_t>::max()));
    out.seed = seed;
  } else if (key == "logprobs") {
    TROUPE_TRY(auto best, to_u32(v, field));
    out.logprobs = best;
  } else {
    return false;
  }
  return true;
}

Result<bool> read_stop(std::string_view key, const json::value& v, const Field& field, RequestLine& out) {
  StopConditions& stop = out.request.stop;
  if (key == "max_tokens") {
    TROUPE_TRY(stop.max_tokens, to_u32(v, field));
  } else if (key == "min_tokens") {
    TROUPE_TRY(stop.min_tokens, to_u32(v, field));
  } else if (key == "stop") {
    TROUPE_TRY(stop.stop, to_strings(v, field));
  } else if (key == "stop_token_ids") {
    TROUPE_TRY(stop.stop_token_ids, to_ids(v, field));
  } else if (key == "ignore_eos") {
    TROUPE_TRY(stop.ignore_eos, to_bool(v, field));
  } else if (key == "think") {
    TROUPE_TRY(auto think, to_think(v, field));
    out.request.think = think;
  } else {
    return false;
  }
  return true;
}

Result<bool> read_timing(std::string_view key, const json::value& v, const Field& field, RequestLine& out) {
  if (key == "arrive_ms") {
    TROUPE_TRY(out.arrive_ms, to_ms(v, field));
  } else if (key == "cancel_ms") {
    TROUPE_TRY(auto ms, to_ms(v, field));
    out.cancel_ms = ms;
  } else if (key == "cancel_after_tokens") {
    TROUPE_TRY(auto n, to_u32(v, field));
    out.cancel_after_tokens = n;
  } else if (key == "deadline_ms") {
    TROUPE_TRY(auto ms, to_ms(v, field));
    out.request.deadline = ms * 1'000'000;
  } else {
    return false;
  }
  return true;
}

Result<void> read_field(std::string_view key, const json::value& v, RequestLine& out, int& prompts) {
  const Field field{out.place, std::string(key)};
  if (key == "id") return success();
  if (key == "prompt" || key == "prompt_ids" || key == "messages") {
    ++prompts;
    return read_prompt(key, v, field, out);
  }
  TROUPE_TRY(bool known, read_sampling(key, v, field, out.request.sampling));
  if (known) return success();
  TROUPE_TRY(known, read_stop(key, v, field, out));
  if (known) return success();
  TROUPE_TRY(known, read_timing(key, v, field, out));
  if (known) return success();
  if (key == "adapter") {
    TROUPE_TRY(out.request.adapter, to_string(v, field));
    return success();
  }
  return field.error("unknown field; `troupe run --help` lists the fields of a request");
}

Result<void> read_load(const json::value& v, const Field& field, LoraCommand& out) {
  if (!v.is_object()) return field.wrong("{\"name\": ..., \"dir\": ...}", v);
  out.kind = LoraCommand::Kind::promote_disk;
  for (const auto& [key, value] : v.get_object()) {
    if (key == "name") {
      TROUPE_TRY(out.name, to_string(value, field.at(key)));
    } else if (key == "dir") {
      TROUPE_TRY(out.path, to_string(value, field.at(key)));
    } else if (key == "slot") {
      TROUPE_TRY(out.slot, to_u32(value, field.at(key)));
      out.kind = LoraCommand::Kind::load_into_slot;
    } else {
      return field.at(key).error("unknown field; a load has \"name\", \"dir\" and \"slot\"");
    }
  }
  return success();
}

Result<LoraCommand> to_lora(const json::value& v, const Field& field) {
  if (!v.is_object()) return field.wrong("an object with a command", v);
  LoraCommand out;
  int commands = 0;
  for (const auto& [key, value] : v.get_object()) {
    const Field here = field.at(key);
    if (key == "load") {
      ++commands;
      TROUPE_TRY(read_load(value, here, out));
    } else if (key == "unload" || key == "rotate") {
      ++commands;
      out.kind = key == "unload" ? LoraCommand::Kind::unload : LoraCommand::Kind::rotate;
      TROUPE_TRY(out.name, to_string(value, here));
    } else if (key == "list") {
      ++commands;
      TROUPE_TRY(to_bool(value, here));
    } else if (key == "max_wait_ms") {
      TROUPE_TRY(auto ms, to_ms(value, here));
      out.max_wait = ms * 1'000'000;
    } else if (key == "preempt") {
      TROUPE_TRY(bool preempt, to_bool(value, here));
      out.at_bound = preempt ? LoraCommand::AtBound::preempt : LoraCommand::AtBound::fail;
    } else {
      return here.error("unknown field; the commands are \"load\", \"unload\", \"rotate\" and \"list\"");
    }
  }
  if (commands != 1) return field.error(fmt::format("needs exactly one of \"load\", \"unload\", \"rotate\" and \"list\", and has {}", commands));
  return out;
}

Result<void> read_lora_line(const json::object& object, RequestLine& out) {
  for (const auto& [key, value] : object) {
    const Field field{out.place, std::string(key)};
    if (key == "id") continue;
    if (key == "lora") {
      TROUPE_TRY(out.lora, to_lora(value, field));
    } else if (key == "at_ms") {
      TROUPE_TRY(out.arrive_ms, to_ms(value, field));
    } else {
      return field.error("unknown field; a LoRA command has \"lora\", \"at_ms\" and \"id\"");
    }
  }
  return success();
}

Result<json::value> parse_json(std::string_view text, const std::string& place) {
  json::error_code error;
  json::stream_parser parser;
  const std::size_t used = parser.write_some(text.data(), text.size(), error);
  if (!error && used == text.size()) parser.finish(error);
  if (!error && used < text.size()) error = json::error::extra_data;
  if (error) return Error{ErrorCode::bad_request, fmt::format("{}: no JSON: {} at byte {}", place, error.message(), used)};
  return parser.release();
}

}  // namespace

std::variant<RequestLine, LineError> parse_request_line(std::string_view line, std::string place) {
  LineError bad;
  auto parsed = parse_json(line, place);
  if (!parsed) {
    bad.error = parsed.error();
    return bad;
  }
  if (!parsed.value().is_object()) {
    bad.error = {ErrorCode::bad_request, fmt::format("{}: a request must be a JSON object, not {}", place, kind_name(parsed.value()))};
    return bad;
  }
  const json::object& object = parsed.value().get_object();
  RequestLine out;
  out.place = std::move(place);
  const json::value* id = object.if_contains("id");
  const bool lora = object.contains("lora");
  if (lora && id == nullptr) out.id = "null";
  else if (id == nullptr || !(id->is_string() || id->is_int64() || id->is_uint64())) {
    bad.error = {ErrorCode::bad_request, fmt::format("{}: field \"id\": {}", out.place,
                                                     id == nullptr ? "is missing; every request needs one, a string or an integer"
                                                                   : std::string("must be a string or an integer, not ") + kind_name(*id))};
    return bad;
  }
  if (id != nullptr) out.id = json::serialize(*id);
  bad.id = out.id;
  if (lora) {
    if (auto read = read_lora_line(object, out); !read) {
      bad.error = read.error();
      return bad;
    }
    return out;
  }
  int prompts = 0;
  for (const auto& [key, value] : object) {
    if (auto read = read_field(key, value, out, prompts); !read) {
      bad.error = read.error();
      return bad;
    }
  }
  if (prompts != 1) {
    bad.error = {ErrorCode::bad_request, fmt::format("{}: needs exactly one of \"prompt\", \"prompt_ids\" and \"messages\", and has {}",
                                                     out.place, prompts)};
    return bad;
  }
  return out;
}

Result<std::vector<Token>> parse_ids(std::string_view text, const std::string& place) {
  TROUPE_TRY(auto value, parse_json(text, place));
  if (value.is_array()) return to_ids(value, Field{place, "ids"});
  const json::value* ids = value.is_object() ? value.get_object().if_contains("ids") : nullptr;
  if (ids == nullptr || value.get_object().size() != 1) {
    return Error{ErrorCode::bad_request, fmt::format("{}: expected {{\"ids\": [...]}} or an array of ids", place)};
  }
  return to_ids(*ids, Field{place, "ids"});
}

Result<std::vector<Token>> parse_id_list(std::string_view text) {
  std::vector<Token> ids;
  for (const char *at = text.data(), *end = at + text.size();;) {
    Token id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    if (error != std::errc{} || (next != end && *next != ',')) {
      return Error{ErrorCode::bad_request, fmt::format("\"{}\" is no list of ids such as 1,2,3: wrong at character {}", text,
                                                       (error != std::errc{} ? at : next) - text.data() + 1)};
    }
    ids.push_back(id);
    if (next == end) return ids;
    at = next + 1;
  }
}

}  // namespace troupe::tools
