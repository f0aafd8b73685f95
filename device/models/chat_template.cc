#include "device/models/chat_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "device/models/utf8.h"

namespace troupe::device {

namespace {

// A piece of a template: text between tags, or what stands in a tag, or a tag's brackets ("{%", "%}", "{{", "}}").
struct Lexeme {
  enum class Kind : std::uint8_t { text, string, word, sign, end };
  Kind kind = Kind::end;
  std::string text;
  bool operator==(const Lexeme&) const = default;
};

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }

// None: something that no template of the shape has.
std::optional<std::vector<Lexeme>> split(std::string_view s) {
  using Kind = Lexeme::Kind;
  std::vector<Lexeme> out;
  std::size_t at = 0;
  bool trim = false;  // the tag before said "-%}", or was a block tag, after which one newline is dropped
  while (at < s.size()) {
    std::size_t open = std::min(s.find("{%", at), s.find("{{", at));
    open = std::min(open, s.size());
    std::string_view between = s.substr(at, open - at);
    const bool trim_right = open + 2 < s.size() && s[open + 2] == '-';
    if (!out.empty() && out.back().text == "%}" && !between.empty() && between.front() == '\n') between.remove_prefix(1);
    while (trim && !between.empty() && is_space(between.front())) between.remove_prefix(1);
    while (trim_right && !between.empty() && is_space(between.back())) between.remove_suffix(1);
    if (!between.empty()) out.push_back({Kind::text, std::string(between)});
    if (open == s.size()) break;
    const std::string_view close = s[open + 1] == '%' ? "%}" : "}}";
    out.push_back({Kind::sign, std::string(s.substr(open, 2))});
    at = open + 2 + (trim_right ? 1 : 0);
    for (;;) {
      while (at < s.size() && is_space(s[at])) ++at;
      if (at >= s.size()) return std::nullopt;
      const char c = s[at];
      trim = c == '-' && s.substr(at + 1, 2) == close;
      if (trim || s.substr(at, 2) == close) {
        at += trim ? 3 : 2;
        out.push_back({Kind::sign, std::string(close)});
        break;
      }
      if (c == '\'' || c == '"') {
        std::string text;
        for (++at; at < s.size() && s[at] != c; ++at) {
          if (s[at] != '\\') {
            text.push_back(s[at]);
            continue;
          }
          if (++at >= s.size()) return std::nullopt;
          switch (s[at]) {
            case 'n':
              text.push_back('\n');
              break;
            case 't':
              text.push_back('\t');
              break;
            case 'r':
              text.push_back('\r');
              break;
            case '\\':
            case '\'':
            case '"':
              text.push_back(s[at]);
              break;
            default:
              return std::nullopt;
          }
        }
        if (at >= s.size()) return std::nullopt;
        ++at;
        out.push_back({Kind::string, std::move(text)});
      } else if (is_word(c)) {
        const std::size_t begin = at;
        while (at < s.size() && is_word(s[at])) ++at;
        out.push_back({Kind::word, std::string(s.substr(begin, at - begin))});
      } else {
        const std::size_t size = s.substr(at, 2) == "!=" || s.substr(at, 2) == "==" ? 2 : 1;
        out.push_back({Kind::sign, std::string(s.substr(at, size))});
        at += size;
      }
    }
  }
  out.push_back({});
  return out;
}

// Python's str.strip(), which is Jinja's trim.
std::string_view trimmed(std::string_view s) {
  const auto space = [](char32_t c) {
    return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
           c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
  };
  while (!s.empty()) {
    const Utf8Char c = utf8_front(s);
    if (c.size == 0 || !space(c.value)) break;
    s.remove_prefix(c.size);
  }
  while (!s.empty()) {
    std::size_t at = s.size() - 1;
    while (at > 0 && (static_cast<unsigned char>(s[at]) & 0xc0) == 0x80) --at;
    const Utf8Char c = utf8_front(s.substr(at));
    if (c.size != s.size() - at || !space(c.value)) break;
    s.remove_suffix(c.size);
  }
  return s;
}

}  // namespace

// Recognises the shape, lexeme by lexeme. Every method answers whether what it expects stood there.
class ChatTemplateParser {
 public:
  ChatTemplateParser(std::vector<Lexeme> lexemes, const ChatTokens& tokens) : lexemes_(std::move(lexemes)), tokens_(tokens) {}

  std::optional<ChatTemplate> parse() {
    ChatTemplate t;
    std::string variable, all = "messages";
    if (peek("{{") && !take_begin(t)) return std::nullopt;
    const std::size_t begin = at_;
    if (!(signs_and_words({"{%", "set"}) && take_word(all) && signs_and_words({"=", "messages", "%}"}))) {  // another name for them
      at_ = begin;
      all = "messages";
    }
    if (!signs_and_words({"{%", "for"}) || !take_word(variable) || !signs_and_words({"in", all, "%}"})) return std::nullopt;
    if (peek("{%") && !take_default_system(t)) return std::nullopt;
    if (peek("{%")) {
      if (!take_set_message(t, variable)) return std::nullopt;
    } else {
      while (!peek("{%")) {
        if (!take_output(t.message_, variable)) return std::nullopt;
      }
    }
    if (!signs_and_words({"{%", "endfor", "%}"})) return std::nullopt;
    if (peek("{%")) {
      std::vector<ChatTemplate::Part> reply;
      if (!signs_and_words({"{%", "if", "add_generation_prompt", "%}"}) || !take_output(reply, "")) return std::nullopt;
      if (!signs_and_words({"{%", "endif", "%}"}) || reply.size() != 1) return std::nullopt;
      t.reply_ = std::move(reply[0].text);
    }
    using Kind = ChatTemplate::Part::Kind;
    const auto count = [&](Kind kind) {
      return std::count_if(t.message_.begin(), t.message_.end(), [&](const auto& p) { return p.kind == kind; });
    };
    if (lexemes_[at_].kind != Lexeme::Kind::end || count(Kind::role) != 1 || count(Kind::content) + count(Kind::trimmed_content) != 1) {
      return std::nullopt;
    }
    return t;
  }

 private:
  using Kind = Lexeme::Kind;

  bool peek(std::string_view sign) const { return lexemes_[at_].kind == Kind::sign && lexemes_[at_].text == sign; }
  bool take(Kind kind, std::string_view text) {
    if (lexemes_[at_].kind != kind || lexemes_[at_].text != text) return false;
    ++at_;
    return true;
  }
  bool signs_and_words(std::initializer_list<std::string_view> all) {
    for (std::string_view text : all) {
      if (!take(is_word(text[0]) ? Kind::word : Kind::sign, text)) return false;
    }
    return true;
  }
  bool take_word(std::string& word) {
    if (lexemes_[at_].kind != Kind::word) return false;
    word = lexemes_[at_++].text;
    return true;
  }
  // name['field'] or name.field
  bool take_field(std::string& field) {
    if (take(Kind::sign, ".")) return take_word(field);
    if (!take(Kind::sign, "[") || lexemes_[at_].kind != Kind::string) return false;
    field = lexemes_[at_++].text;
    return take(Kind::sign, "]");
  }
  // {{ bos_token }}
  bool take_begin(ChatTemplate& t) {
    std::vector<ChatTemplate::Part> parts;
    if (!take_output(parts, "") || parts.size() != 1) return false;
    t.begin_ = std::move(parts[0].text);
    return true;
  }
  // {% set c = ... %}{% if loop.index0 == 0 %}{% set c = bos_token + c %}{% endif %}{{ c }}, as Llama 3 has it
  bool take_set_message(ChatTemplate& t, std::string_view variable) {
    std::string name, again;
    if (!signs_and_words({"{%", "set"}) || !take_word(name) || !take(Kind::sign, "=") || !take_sum(t.message_, variable)) return false;
    if (!signs_and_words({"%}", "{%", "if", "loop", ".", "index0", "==", "0", "%}", "{%", "set"})) return false;
    if (!take_word(again) || again != name || !signs_and_words({"=", "bos_token", "+"})) return false;
    if (!take(Kind::word, name) || !signs_and_words({"%}", "{%", "endif", "%}", "{{"}) || !take(Kind::word, name)) return false;
    t.begin_ += tokens_.bos;
    return take(Kind::sign, "}}");
  }
  // {% if loop.first and messages[0]['role'] != 'system' %}{{ '...' }}{% endif %}
  bool take_default_system(ChatTemplate& t) {
    const std::size_t begin = at_;
    if (!signs_and_words({"{%", "if"})) {
      at_ = begin;
      return true;
    }
    std::string field;
    std::vector<ChatTemplate::Part> parts;
    if (!signs_and_words({"loop", ".", "first", "and", "messages", "[", "0", "]"}) || !take_field(field) || field != "role") return false;
    if (!take(Kind::sign, "!=") || !take(Kind::string, "system") || !take(Kind::sign, "%}")) return false;
    if (!take_output(parts, "") || parts.size() != 1 || !signs_and_words({"{%", "endif", "%}"})) return false;
    t.default_system_ = std::move(parts[0].text);
    return true;
  }
  // Text, or {{ a + b + ... }} of literals and, where `variable` is named, its role and content. Neighbouring literals
  // become one.
  bool take_output(std::vector<ChatTemplate::Part>& parts, std::string_view variable) {
    if (lexemes_[at_].kind == Kind::text) {
      add_literal(parts, lexemes_[at_++].text);
      return true;
    }
    return take(Kind::sign, "{{") && take_sum(parts, variable) && take(Kind::sign, "}}");
  }
  // a + b + ...
  bool take_sum(std::vector<ChatTemplate::Part>& parts, std::string_view variable) {
    do {
      if (lexemes_[at_].kind == Kind::string) {
        add_literal(parts, lexemes_[at_++].text);
      } else if (take(Kind::word, "bos_token")) {
        add_literal(parts, std::string(tokens_.bos));
      } else if (take(Kind::word, "eos_token")) {
        add_literal(parts, std::string(tokens_.eos));
      } else {
        std::string field;
        if (variable.empty() || !take(Kind::word, variable) || !take_field(field)) return false;
        if (field != "role" && field != "content") return false;
        using PartKind = ChatTemplate::Part::Kind;
        PartKind kind = field == "role" ? PartKind::role : PartKind::content;
        if (take(Kind::sign, "|")) {  // binds closer than +
          if (kind == PartKind::role || !take(Kind::word, "trim")) return false;
          kind = PartKind::trimmed_content;
        }
        parts.push_back({kind, {}});
      }
    } while (take(Kind::sign, "+"));
    return true;
  }
  static void add_literal(std::vector<ChatTemplate::Part>& parts, const std::string& text) {
    if (parts.empty() || parts.back().kind != ChatTemplate::Part::Kind::literal) parts.emplace_back();
    parts.back().text += text;
  }

  std::vector<Lexeme> lexemes_;  // the last is `end`
  ChatTokens tokens_;
  std::size_t at_ = 0;
};

Result<ChatTemplate> ChatTemplate::parse(std::string_view source, const ChatTokens& tokens) {
  if (auto lexemes = split(source)) {
    if (auto t = ChatTemplateParser(std::move(*lexemes), tokens).parse()) return std::move(*t);
  }
  std::string start(source.substr(0, 120));
  for (char& c : start) c = static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  return Error{
      ErrorCode::unsupported,
      fmt::format(
          "this chat template is not one that is recognised (ChatML and Llama 3's are); render the prompt yourself. It begins: {}{}", start,
          source.size() > start.size() ? "..." : "")};
}

Result<ChatTemplate> ChatTemplate::from_gguf(const GgufFile& file) {
  TROUPE_TRY(auto source, file.get_string("tokenizer.chat_template"));
  const auto text_of = [&](const char* key) -> Result<std::string_view> {
    if (!file.has(key) || !file.has("tokenizer.ggml.tokens")) return std::string_view();
    TROUPE_TRY(auto id, file.get_uint(key));
    TROUPE_TRY(auto tokens, file.get_strings("tokenizer.ggml.tokens"));
    if (id < tokens.size()) return tokens[id];
    return Error{ErrorCode::bad_file,
                 fmt::format("{}: key '{}': id {} is outside the vocabulary of {}", file.path(), key, id, tokens.size())};
  };
  TROUPE_TRY(auto bos, text_of("tokenizer.ggml.bos_token_id"));
  TROUPE_TRY(auto eos, text_of("tokenizer.ggml.eos_token_id"));
  auto t = parse(source, {bos, eos});
  if (!t) return Error{t.error().code, file.path() + ": key 'tokenizer.chat_template': " + t.error().what};
  return t;
}

Result<std::string> ChatTemplate::render(std::span<const ChatMessage> messages) const {
  if (messages.empty()) return Error{ErrorCode::bad_request, "a chat needs at least one message"};
  std::string out = begin_;
  if (messages[0].role != "system") out += default_system_;
  for (const ChatMessage& m : messages) {
    for (const Part& p : message_) {
      switch (p.kind) {
        case Part::Kind::literal:
          out += p.text;
          break;
        case Part::Kind::role:
          out += m.role;
          break;
        case Part::Kind::content:
          out += m.content;
          break;
        case Part::Kind::trimmed_content:
          out += trimmed(m.content);
          break;
      }
    }
  }
  return out + reply_;
}

}  // namespace troupe::device
