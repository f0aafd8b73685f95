#include "device/models/tokenizer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "device/models/gguf_format.h"
#include "device/models/json_fields.h"

namespace troupe::device {

namespace json = boost::json;
using gguf_format::shown;

namespace {

constexpr std::size_t kMostBytes = 64u << 20;
constexpr std::size_t kMostUnusedIds = 1u << 16;  // between the ids that have a text

// As tokenizer.json of Llama 3 and of Qwen2 writes them.
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

std::string_view view(const json::string& s) { return {s.data(), s.size()}; }
Error unsupported(const JsonFields& f, const std::string& what) { return {ErrorCode::unsupported, f.where() + ": " + what}; }

// A string, or a token written out as an object with its text in `content`. "": missing.
Result<std::string_view> token_text(const JsonFields& f, const char* key) {
  const json::value* v = f.find(key);
  if (v == nullptr) return std::string_view();
  if (v->is_string()) return view(v->get_string());
  TROUPE_TRY(auto o, f.object(key));
  return o.string("content");
}

Result<bool> is_byte_level(const JsonFields& step, bool& with_split) {
  TROUPE_TRY(auto type, step.string("type"));
  if (type != "ByteLevel") return false;
  TROUPE_TRY(auto prefix, step.boolean_or("add_prefix_space", true));
  if (prefix) return unsupported(step, "'add_prefix_space': a space in front of a text is not supported");
  TROUPE_TRY(with_split, step.boolean_or("use_regex", true));
  return true;
}

// The name of the split that `pre_tokenizer` describes: what ByteLevel does itself, or the step in front of it.
Result<std::string> read_split(const JsonFields& root) {
  TROUPE_TRY(auto pre, root.object("pre_tokenizer"));
  const auto unknown = [&] {
    return unsupported(pre, fmt::format("this way to split text is not known (GPT-2's, SmolLM's, Llama 3's and Qwen2's are): {}",
                                        shown_json(*root.find("pre_tokenizer"))));
  };
  std::vector<JsonFields> steps;
  TROUPE_TRY(auto type, pre.string("type"));
  if (type == "Sequence") {
    const json::value* all = pre.find("pretokenizers");
    if (all == nullptr || !all->is_array() || all->get_array().empty()) return pre.bad("pretokenizers", "an array of steps");
    if (all->get_array().size() > 2) return unknown();
    for (const json::value& v : all->get_array()) {
      TROUPE_TRY(auto step, JsonFields::of(v, fmt::format("{}: step {}", pre.where(), steps.size())));
      steps.push_back(step);
    }
  } else {
    steps.push_back(pre);
  }
  bool with_split = false;
  TROUPE_TRY(auto last, is_byte_level(steps.back(), with_split));
  if (!last) return unknown();
  if (steps.size() == 1) return with_split ? Result<std::string>("gpt-2") : unknown();
  const JsonFields& first = steps.front();
  TROUPE_TRY(auto kind, first.string("type"));
  if (kind == "Digits") {
    TROUPE_TRY(auto each, first.boolean_or("individual_digits", false));
    return each && with_split ? Result<std::string>("smollm") : unknown();
  }
  if (kind != "Split" || with_split) return unknown();
  TROUPE_TRY(auto pattern, first.object("pattern"));
  TROUPE_TRY(auto regex, pattern.string_or("Regex", ""));
  TROUPE_TRY(auto behavior, first.string("behavior"));
  TROUPE_TRY(auto invert, first.boolean_or("invert", false));
  if (behavior != "Isolated" || invert) return unknown();
  if (regex == kLlama3) return std::string("llama-bpe");
  if (regex == kQwen2) return std::string("qwen2");
  return unsupported(pattern, fmt::format("'Regex' is none of the known ones (Llama 3's and Qwen2's): {}", shown(regex)));
}

Result<bool> read_normalizer(const JsonFields& root) {
  if (!root.has("normalizer")) return false;
  TROUPE_TRY(auto normalizer, root.object("normalizer"));
  TROUPE_TRY(auto type, normalizer.string("type"));
  if (type == "NFC") return true;
  const json::value* all = normalizer.find("normalizers");
  if (type == "Sequence" && all != nullptr && all->is_array() && all->get_array().empty()) return false;
  return unsupported(normalizer, fmt::format("a normalizer '{}'; NFC or none is supported", shown(type)));
}

// Fills in the texts of ids: those of the model's vocabulary, then the added tokens.
Result<void> read_tokens(const JsonFields& root, const JsonFields& model, std::uint32_t vocab, TokenizerParts& parts) {
  TROUPE_TRY(auto words, model.object("vocab"));
  const json::object& map = model.find("vocab")->get_object();
  const json::value* added = root.find("added_tokens");
  if (added != nullptr && !added->is_array()) return root.bad("added_tokens", "an array of tokens");
  const std::size_t n_added = added == nullptr ? 0 : added->get_array().size();
  // Ids are nearly dense in every tokenizer; a far one must not make a table of billions.
  const auto most = static_cast<std::uint32_t>(std::min<std::size_t>(map.size() + n_added + kMostUnusedIds, UINT32_MAX - 1));
  std::vector<bool> known;
  const auto place = [&](std::uint32_t id, std::string_view text, TokenType type) {
    if (id >= parts.tokens.size()) {
      parts.tokens.resize(id + 1);
      parts.types.resize(id + 1, TokenType::unused);
      known.resize(id + 1);
    }
    if (known[id] && parts.tokens[id] != text) return false;
    known[id] = true;
    parts.tokens[id] = text;
    parts.types[id] = type;
    return true;
  };
  for (const auto& [key, value] : map) {
    const std::string_view text(key.data(), key.size());
    if (!value.is_int64() || value.get_int64() < 0 || value.get_int64() >= most) {
      return words.bad(text.substr(0, 80), fmt::format("an id below {}", most));
    }
    if (!place(static_cast<std::uint32_t>(value.get_int64()), text, TokenType::normal)) {
      return words.bad(text.substr(0, 80), "an id that no other token has");
    }
  }
  for (std::size_t i = 0; i < n_added; ++i) {
    TROUPE_TRY(auto token, JsonFields::of(added->get_array()[i], fmt::format("{}: 'added_tokens', entry {}", root.where(), i)));
    TROUPE_TRY(auto id, token.count("id", 0, most - 1));
    TROUPE_TRY(auto text, token.string("content"));
    if (text.empty()) return token.bad("content", "a text that is not empty");
    for (const char* key : {"single_word", "lstrip", "rstrip"}) {
      TROUPE_TRY(auto set, token.boolean_or(key, false));
      if (set)
        return unsupported(token, fmt::format("'{}' is true; tokens that take spaces or word bounds with them are not supported", key));
    }
    TROUPE_TRY(auto special, token.boolean_or("special", false));
    if (!place(id, text, special ? TokenType::control : TokenType::user_defined)) return token.bad("id", "an id that no other token has");
  }
  if (parts.tokens.empty()) return model.bad("vocab", "an object with tokens and their ids");
  if (vocab > parts.tokens.size()) {
    if (vocab - parts.tokens.size() > kMostUnusedIds) {
      return Error{ErrorCode::bad_file,
                   fmt::format("{}: has ids up to {}, but the model a vocabulary of {}", root.where(), parts.tokens.size(), vocab)};
    }
    parts.tokens.resize(vocab);
    parts.types.resize(vocab, TokenType::unused);
  }
  return success();
}

Result<void> read_merges(const JsonFields& model, TokenizerParts& parts) {
  constexpr const char* kExpected = "an array of merges, each \"left right\" or [\"left\", \"right\"],";
  const json::value* merges = model.find("merges");
  if (merges == nullptr || !merges->is_array()) return model.bad("merges", kExpected);
  parts.merges.reserve(merges->get_array().size());
  for (const json::value& m : merges->get_array()) {
    if (m.is_string()) {
      if (const auto pair = cut_merge(view(m.get_string()))) {
        parts.merges.push_back(*pair);
        continue;
      }
    } else if (m.is_array() && m.get_array().size() == 2 && m.get_array()[0].is_string() && m.get_array()[1].is_string()) {
      parts.merges.emplace_back(view(m.get_array()[0].get_string()), view(m.get_array()[1].get_string()));
      continue;
    }
    return Error{ErrorCode::bad_file, fmt::format("{}, entry {}: is {}; {} is expected", parts.merges_where, parts.merges.size(),
                                                  shown_json(m), "\"left right\" or [\"left\", \"right\"]")};
  }
  return success();
}

// The token that a post-processor puts in front of a single text, by its name there. "": none.
std::string_view first_of_template(const json::value* processor) {
  if (processor == nullptr || !processor->is_object()) return {};
  const json::object& o = processor->get_object();
  if (const json::value* all = o.if_contains("processors"); all != nullptr && all->is_array()) {
    for (const json::value& p : all->get_array()) {
      const json::value* nested = p.is_object() ? p.get_object().if_contains("processors") : nullptr;
      if (nested != nullptr) continue;
      if (const std::string_view text = first_of_template(&p); !text.empty()) return text;
    }
    return {};
  }
  const json::value* single = o.if_contains("single");
  if (single == nullptr || !single->is_array() || single->get_array().empty() || !single->get_array()[0].is_object()) return {};
  const json::value* special = single->get_array()[0].get_object().if_contains("SpecialToken");
  const json::value* id = special != nullptr && special->is_object() ? special->get_object().if_contains("id") : nullptr;
  return id != nullptr && id->is_string() ? view(id->get_string()) : std::string_view();
}

Result<Token> token_named(const TokenizerParts& parts, std::string_view text, const std::string& where) {
  const auto it = std::find(parts.tokens.begin(), parts.tokens.end(), text);
  if (it == parts.tokens.end())
    return Error{ErrorCode::bad_file, fmt::format("{}: the token '{}' is not in the vocabulary", where, shown(text))};
  return static_cast<Token>(it - parts.tokens.begin());
}

// bos and eos. Whether a raw prompt begins with bos: add_bos_token says so, else the post-processor.
Result<void> read_ends(const TokenizerFiles& files, const JsonFields& root, TokenizerParts& parts) {
  const std::string config = files.folder + "/tokenizer_config.json";
  std::string_view bos = first_of_template(root.find("post_processor"));
  json::value value;
  if (!files.config.empty()) {
    TROUPE_TRY(value, parse_json(files.config, config));
    TROUPE_TRY(auto f, JsonFields::of(value, config));
    TROUPE_TRY(auto eos, token_text(f, "eos_token"));
    if (!eos.empty()) {
      TROUPE_TRY(auto id, token_named(parts, eos, config + ": field 'eos_token'"));
      parts.eos_ids.push_back(id);
    }
    if (f.has("add_bos_token")) {
      TROUPE_TRY(auto add, f.boolean_or("add_bos_token", false));
      TROUPE_TRY(bos, token_text(f, "bos_token"));
      if (add && bos.empty()) return f.bad("bos_token", "a token, since 'add_bos_token' is true,");
      if (!add) bos = {};
    }
  }
  if (!bos.empty()) {
    TROUPE_TRY(parts.bos_id, token_named(parts, bos, files.folder + ": the token in front of a prompt"));
  }
  return success();
}

}  // namespace

Result<TokenizerFiles> read_tokenizer_files(const std::string& folder) {
  TokenizerFiles files;
  files.folder = folder;
  TROUPE_TRY(files.tokenizer, read_text_file(folder + "/tokenizer.json", kMostBytes));
  const auto optional = [&](const char* file) -> Result<std::string> {
    auto text = read_text_file(folder + file, kMostBytes);
    if (!text && text.error().code == ErrorCode::not_found) return std::string();
    return text;
  };
  TROUPE_TRY(files.config, optional("/tokenizer_config.json"));
  TROUPE_TRY(files.chat_template, optional("/chat_template.jinja"));
  return files;
}

Result<Tokenizer> tokenizer_from_json(const TokenizerFiles& files) {
  const std::string file = files.folder + "/tokenizer.json";
  TROUPE_TRY(auto value, parse_json(files.tokenizer, file));
  TROUPE_TRY(auto root, JsonFields::of(value, file));
  TROUPE_TRY(auto model, root.object("model"));
  TROUPE_TRY(auto type, model.string_or("type", "BPE"));
  if (type != "BPE") return unsupported(model, fmt::format("field 'type' is '{}'; byte-level BPE is supported", shown(type)));
  TROUPE_TRY(auto fallback, model.boolean_or("byte_fallback", false));
  if (fallback) return unsupported(model, "field 'byte_fallback' is true (SentencePiece); byte-level BPE is supported");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    TROUPE_TRY(auto text, model.string_or(key, ""));
    if (!text.empty()) return unsupported(model, fmt::format("field '{}' is not supported", key));
  }
  TROUPE_TRY(auto dropout, model.number_or("dropout", 0.0));
  if (dropout != 0.0) return unsupported(model, "field 'dropout': random merges are not supported");

  TokenizerParts parts;
  parts.split_where = file + ": 'pre_tokenizer'";
  parts.tokens_where = file + ": 'vocab'";
  parts.merges_where = file + ": 'merges'";
  TROUPE_TRY(parts.split, read_split(root));
  TROUPE_TRY(parts.nfc, read_normalizer(root));
  TROUPE_TRY(parts.whole_words, model.boolean_or("ignore_merges", false));
  TROUPE_TRY(read_tokens(root, model, files.vocab, parts));
  TROUPE_TRY(read_merges(model, parts));
  TROUPE_TRY(read_ends(files, root, parts));
  return Tokenizer::build(parts);
}

Result<ChatTemplate> chat_template_from_json(const TokenizerFiles& files) {
  const std::string config = files.folder + "/tokenizer_config.json";
  json::value value(json::object_kind);
  if (!files.config.empty()) {
    TROUPE_TRY(value, parse_json(files.config, config));
  }
  TROUPE_TRY(auto f, JsonFields::of(value, config));
  TROUPE_TRY(auto bos, token_text(f, "bos_token"));
  TROUPE_TRY(auto eos, token_text(f, "eos_token"));
  std::string where = files.folder + "/chat_template.jinja";
  std::string_view source = files.chat_template;
  if (source.empty()) {
    where = config + ": field 'chat_template'";
    const json::value* v = f.find("chat_template");
    if (v == nullptr)
      return Error{ErrorCode::not_found, fmt::format("{}: the model has no chat template; render the prompt yourself", files.folder)};
    if (v->is_array()) {
      for (const json::value& entry : v->get_array()) {
        TROUPE_TRY(auto named, JsonFields::of(entry, where + ", an entry"));
        TROUPE_TRY(auto name, named.string("name"));
        if (name != "default") continue;
        TROUPE_TRY(source, named.string("template"));
      }
      if (source.empty()) return f.bad("chat_template", "a string, or an array with a template named \"default\",");
    } else {
      TROUPE_TRY(source, f.string("chat_template"));
    }
  }
  auto t = ChatTemplate::parse(source, {bos, eos});
  if (!t) return Error{t.error().code, where + ": " + t.error().what};
  return t;
}

}  // namespace troupe::device
