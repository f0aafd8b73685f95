#include "tools/troupe/json_fields.h"

#include <fmt/format.h>

#include <charconv>

namespace troupe::tools {

namespace json = boost::json;

const char* kind_name(const json::value& v) {
  switch (v.kind()) {
    case json::kind::null:
      return "null";
    case json::kind::bool_:
      return "a truth value";
    case json::kind::int64:
    case json::kind::uint64:
      return "an integer";
    case json::kind::double_:
      return "a number with a fraction";
    case json::kind::string:
      return "a string";
    case json::kind::array:
      return "an array";
    case json::kind::object:
      return "an object";
  }
  return "something else";
}

Error Field::error(const std::string& what) const {
  return {ErrorCode::bad_request, fmt::format("{}{}field \"{}\": {}", place, place.empty() ? "" : ": ", name, what)};
}
Error Field::wrong(const char* wanted, const json::value& v) const {
  return error(fmt::format("must be {}, not {}", wanted, kind_name(v)));
}
Field Field::at(std::size_t i) const { return {place, fmt::format("{}[{}]", name, i)}; }
Field Field::at(std::string_view key) const { return {place, fmt::format("{}.{}", name, key)}; }

Result<std::uint64_t> to_uint(const json::value& v, const Field& field, std::uint64_t max) {
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

namespace {

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

}  // namespace

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

Result<bool> read_stop(std::string_view key, const json::value& v, const Field& field, Request& out) {
  StopConditions& stop = out.stop;
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
    out.think = think;
  } else {
    return false;
  }
  return true;
}

Result<json::value> parse_json(std::string_view text, const std::string& place) {
  json::error_code error;
  json::stream_parser parser;
  const std::size_t used = parser.write_some(text.data(), text.size(), error);
  if (!error && used == text.size()) parser.finish(error);
  if (!error && used < text.size()) error = json::error::extra_data;
  if (error)
    return Error{ErrorCode::bad_request,
                 fmt::format("{}{}no JSON: {} at byte {}", place, place.empty() ? "" : ": ", error.message(), used)};
  return parser.release();
}

}  // namespace troupe::tools
