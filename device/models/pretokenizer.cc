#include "device/models/pretokenizer.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <array>
#include <span>
#include <utility>

namespace troupe::device {

namespace {

// White_Space of Unicode; PCRE2's \s takes U+180E too.
#define WS "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"

// The split of GPT-2, as published with it (encoder.py).
constexpr const char* kGpt2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" WS "\\p{L}\\p{N}]+|[" WS "]+(?![^" WS "])|[" WS "]+";
constexpr const char* kEachDigit = "\\p{N}";

// Llama 3's split and Qwen's, as their tokenizer.json have them; \\s is written out for the reason above.
#define MODERN(NUMBERS)                                                                                                              \
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" NUMBERS "| ?[^" WS "\\p{L}\\p{N}]+[\\r\\n]*|[" WS "]*[\\r\\n]+|[" WS \
  "]+(?![^" WS "])|[" WS "]+"
constexpr const char* kLlama3 = MODERN("\\p{N}{1,3}");
constexpr const char* kQwen2 = MODERN("\\p{N}");

#undef MODERN
#undef WS

struct Rule {
  std::string_view name;
  std::array<const char*, 2> patterns;  // null: none
};
constexpr Rule kRules[] = {
    {"gpt-2", {kGpt2, nullptr}},
    {"smollm", {kEachDigit, kGpt2}},
    {"llama-bpe", {kLlama3, nullptr}},
    {"qwen2", {kQwen2, nullptr}},
};

struct FreeMatch {
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
};

std::string pcre_message(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

struct PreTokenizer::Code {
  struct Free {
    void operator()(pcre2_code* p) const { pcre2_code_free(p); }
  };
  std::unique_ptr<pcre2_code, Free> code;
};

PreTokenizer::PreTokenizer(std::vector<Code> codes) : codes_(std::move(codes)) {}
PreTokenizer::~PreTokenizer() = default;
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;

Result<PreTokenizer> PreTokenizer::named(std::string_view name) {
  for (const Rule& rule : kRules) {
    if (rule.name != name) continue;
    std::vector<Code> codes;
    for (const char* pattern : rule.patterns) {
      if (pattern == nullptr) continue;
      int error = 0;
      PCRE2_SIZE at = 0;
      pcre2_code* code =
          pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern), PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &error, &at, nullptr);
      if (code == nullptr) return Error{ErrorCode::internal, fmt::format("pre-tokenizer '{}', at {}: {}", name, at, pcre_message(error))};
      codes.push_back({decltype(Code::code)(code)});
      // Without a just-in-time compiler the same matches are found by interpretation.
      (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    }
    return PreTokenizer(std::move(codes));
  }
  std::string known;
  for (const Rule& rule : kRules) known += fmt::format("{}'{}'", known.empty() ? "" : ", ", rule.name);
  return Error{ErrorCode::unsupported, fmt::format("pre-tokenizer '{}' is not known; known are {}", name, known)};
}

Result<std::vector<std::string_view>> PreTokenizer::split(std::string_view text) const {
  std::vector<std::string_view> pieces;
  if (text.empty()) return pieces;
  pieces.push_back(text);
  std::vector<std::string_view> next;
  for (const Code& c : codes_) {
    const std::unique_ptr<pcre2_match_data, FreeMatch> match(pcre2_match_data_create(1, nullptr));
    if (!match) return Error{ErrorCode::internal, "out of memory in the pre-tokenizer"};
    next.clear();
    for (std::string_view piece : pieces) {
      std::size_t done = 0;
      while (done < piece.size()) {
        const int found = pcre2_match(c.code.get(), reinterpret_cast<PCRE2_SPTR>(piece.data()), piece.size(), done, PCRE2_NO_UTF_CHECK,
                                      match.get(), nullptr);
        if (found == PCRE2_ERROR_NOMATCH) break;
        if (found < 0) return Error{ErrorCode::internal, "the pre-tokenizer failed: " + pcre_message(found)};
        const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match.get());
        if (range[0] > done) next.push_back(piece.substr(done, range[0] - done));
        next.push_back(piece.substr(range[0], range[1] - range[0]));
        done = range[1];
      }
      if (done < piece.size()) next.push_back(piece.substr(done));
    }
    std::swap(pieces, next);
  }
  return pieces;
}

}  // namespace troupe::device
