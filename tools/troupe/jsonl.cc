#include "tools/troupe/jsonl.h"

#include <fmt/format.h>
#include <boost/json.hpp>

#include <charconv>

#include "tools/troupe/json_fields.h"

namespace troupe::tools {
namespace {

namespace json = boost::json;

constexpr std::int64_t kMaxMs = 1'000'000'000;  // about eleven days: still fits when counted in nanoseconds

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
  TROUPE_TRY(known, read_stop(key, v, field, out.request));
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

Result<void> read_promote(const json::value& v, const Field& field, LoraCommand& out) {
  if (!v.is_object()) return field.wrong("{\"name\": ..., \"peer\": ...}", v);
  out.kind = LoraCommand::Kind::promote;
  for (const auto& [key, value] : v.get_object()) {
    if (key == "name") {
      TROUPE_TRY(out.name, to_string(value, field.at(key)));
    } else if (key == "peer") {
      TROUPE_TRY(out.peer, to_string(value, field.at(key)));
    } else if (key == "adapter") {
      TROUPE_TRY(out.adapter, to_string(value, field.at(key)));
    } else {
      return field.at(key).error("unknown field; a promote has \"name\", \"peer\" and \"adapter\"");
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
    } else if (key == "promote") {
      ++commands;
      TROUPE_TRY(read_promote(value, here, out));
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
    } else if (key == "replica") {
      TROUPE_TRY(out.replica, to_string(value, here));
    } else if (key == "roll_back") {
      TROUPE_TRY(out.roll_back, to_bool(value, here));
    } else {
      return here.error("unknown field; the commands are \"load\", \"promote\", \"unload\", \"rotate\" and \"list\"");
    }
  }
  if (commands != 1)
    return field.error(
        fmt::format("needs exactly one of \"load\", \"promote\", \"unload\", \"rotate\" and \"list\", and has {}", commands));
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
  if (lora && id == nullptr) {
    out.id = "null";
  } else if (id == nullptr || !(id->is_string() || id->is_int64() || id->is_uint64())) {
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
    bad.error = {ErrorCode::bad_request,
                 fmt::format("{}: needs exactly one of \"prompt\", \"prompt_ids\" and \"messages\", and has {}", out.place, prompts)};
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
