#include "device/models/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "device/models/nfc.h"
#include "device/models/utf8.h"

namespace troupe::device {

namespace {

// GPT-2 writes each byte of a token as a printable character (encoder.py, bytes_to_unicode): the printable bytes of
// Latin-1 as themselves, the other 68, in ascending order, as U+0100 and on.
struct ByteAlphabet {
  std::array<std::int16_t, 0x144> byte_of{};  // by character; -1 = stands for no byte
  constexpr ByteAlphabet() {
    byte_of.fill(-1);
    std::size_t next = 0x100;
    for (std::size_t b = 0; b < 256; ++b) {
      const bool printable = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
      byte_of[printable ? b : next++] = static_cast<std::int16_t>(b);
    }
  }
};
constexpr ByteAlphabet kAlphabet;

// The bytes that `written` stands for; none if it has a character outside the alphabet.
std::optional<std::string> unwrite(std::string_view written) {
  std::string bytes;
  for (std::size_t at = 0; at < written.size();) {
    const Utf8Char c = utf8_front(written.substr(at));
    if (c.size == 0 || c.value >= kAlphabet.byte_of.size() || kAlphabet.byte_of[c.value] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kAlphabet.byte_of[c.value]));
    at += c.size;
  }
  return bytes;
}

// Ids by what is written in the vocabulary. Sorted: a hash could be made to collide by the file.
class Vocabulary {
 public:
  explicit Vocabulary(const std::vector<std::string_view>& written) : written_(written), order_(written.size()) {
    std::iota(order_.begin(), order_.end(), Token{0});
    std::sort(order_.begin(), order_.end(), [&](Token a, Token b) { return std::pair(written_[a], a) < std::pair(written_[b], b); });
  }
  // Of several with the same text the lowest.
  std::optional<Token> find(std::string_view text) const {
    const auto it = std::lower_bound(order_.begin(), order_.end(), text, [&](Token id, std::string_view t) { return written_[id] < t; });
    if (it == order_.end() || written_[*it] != text) return std::nullopt;
    return *it;
  }

 private:
  const std::vector<std::string_view>& written_;
  std::vector<Token> order_;
};

Result<std::vector<Bpe::Merge>> find_merges(const TokenizerParts& parts, const Vocabulary& vocabulary) {
  std::vector<Bpe::Merge> merges;
  merges.reserve(parts.merges.size());
  std::string joined;
  for (std::size_t i = 0; i < parts.merges.size(); ++i) {
    const auto [left, right] = parts.merges[i];
    joined.assign(left).append(right);
    const auto l = vocabulary.find(left), r = vocabulary.find(right), m = vocabulary.find(joined);
    if (!l || !r || !m) {
      return Error{ErrorCode::bad_file,
                   fmt::format("{}, entry {}: it names or makes a token that is not in the vocabulary", parts.merges_where, i)};
    }
    merges.push_back({*l, *r, *m});
  }
  return merges;
}

// The id of each byte's own token, where the vocabulary has it.
Bpe::ByteIds find_bytes(const Vocabulary& vocabulary) {
  Bpe::ByteIds ids;
  for (std::size_t c = 0; c < kAlphabet.byte_of.size(); ++c) {
    if (kAlphabet.byte_of[c] < 0) continue;
    std::string text;
    if (c < 0x80) {
      text = {static_cast<char>(c)};
    } else {
      text = {static_cast<char>(0xc0 | c >> 6), static_cast<char>(0x80 | (c & 0x3f))};
    }
    ids[static_cast<std::size_t>(kAlphabet.byte_of[c])] = vocabulary.find(text);
  }
  return ids;
}

}  // namespace

Result<Tokenizer> Tokenizer::build(const TokenizerParts& parts) {
  const auto bad = [&](std::string what) { return Error{ErrorCode::bad_file, parts.tokens_where + what}; };
  const auto& written = parts.tokens;
  if (written.empty() || written.size() >= std::numeric_limits<Token>::max())
    return bad(fmt::format(": a vocabulary of {}", written.size()));
  if (parts.types.size() != written.size()) return Error{ErrorCode::internal, "a tokenizer's tokens and their types differ in number"};

  SpecialTokens special;
  TokenTable table;
  table.offsets.push_back(0);
  for (std::size_t i = 0; i < written.size(); ++i) {
    const TokenType type = parts.types[i];
    const bool recognised = type == TokenType::control || type == TokenType::user_defined;
    if (recognised && !written[i].empty()) {
      if (find_invalid_utf8(written[i])) return bad(fmt::format(", entry {}: a special token that is not UTF-8", i));
      special.add(written[i], static_cast<Token>(i),
                  type == TokenType::control ? SpecialTokens::Kind::control : SpecialTokens::Kind::user_defined);
    }
    const auto bytes = recognised ? std::nullopt : unwrite(written[i]);
    table.bytes += bytes ? std::string_view(*bytes) : written[i];
    if (table.bytes.size() > std::numeric_limits<std::uint32_t>::max()) return bad(": more than 4 GiB of text");
    table.offsets.push_back(static_cast<std::uint32_t>(table.bytes.size()));
    table.special.push_back(type == TokenType::control || type == TokenType::unknown || type == TokenType::unused);
  }
  const Vocabulary vocabulary(written);
  TROUPE_TRY(auto merges, find_merges(parts, vocabulary));
  auto pre = PreTokenizer::named(parts.split);
  if (!pre) return Error{pre.error().code, parts.split_where + ": " + pre.error().what};
  Tokenizer t(std::move(pre).value(), Bpe(find_bytes(vocabulary), merges));
  t.nfc_ = parts.nfc;
  if (parts.whole_words) {
    for (std::size_t i = 0; i < written.size(); ++i) {
      if (parts.types[i] == TokenType::normal) t.words_.push_back(static_cast<Token>(i));
    }
    std::sort(t.words_.begin(), t.words_.end(),
              [&](Token a, Token b) { return std::pair(table.text(a), a) < std::pair(table.text(b), b); });
  }
  for (const Token id : parts.eos_ids) {
    if (id >= written.size()) return Error{ErrorCode::internal, "an end token outside the vocabulary"};
    t.eos_ids_.push_back(id);
  }
  std::sort(t.eos_ids_.begin(), t.eos_ids_.end());
  t.eos_ids_.erase(std::unique(t.eos_ids_.begin(), t.eos_ids_.end()), t.eos_ids_.end());
  if (parts.bos_id) t.bos_ids_.push_back(*parts.bos_id);
  t.special_ = std::move(special);
  t.vocab_ = static_cast<std::uint32_t>(written.size());
  t.table_ = Shared<TokenTable>::of(std::move(table));
  return t;
}

std::optional<Token> Tokenizer::whole_word(std::string_view word) const {
  const TokenTable& t = *table_;
  const auto it = std::lower_bound(words_.begin(), words_.end(), word, [&](Token id, std::string_view w) { return t.text(id) < w; });
  if (it == words_.end() || t.text(*it) != word) return std::nullopt;
  return *it;
}

Result<void> Tokenizer::encode_plain(std::string_view text, std::size_t begin, Bpe::Scratch& scratch, std::vector<Token>& ids) const {
  std::optional<std::string> composed;
  if (nfc_) {
    TROUPE_TRY(composed, to_nfc(text));
    if (composed) text = *composed;
  }
  TROUPE_TRY(auto words, pre_.split(text));
  for (std::string_view word : words) {
    if (const auto whole = words_.empty() ? std::nullopt : whole_word(word)) {
      ids.push_back(*whole);
    } else if (const auto missing = bpe_.encode(word, scratch, ids)) {
      return Error{ErrorCode::bad_request, fmt::format("the vocabulary has no token for byte {} (0x{:02x}) of the text{}",
                                                       begin + static_cast<std::size_t>(word.data() - text.data()) + *missing,
                                                       static_cast<unsigned char>(word[*missing]), composed ? " (composed by NFC)" : "")};
    }
  }
  return success();
}

Result<std::vector<Token>> Tokenizer::encode(std::string_view text, bool parse_special) const {
  if (text.size() > std::numeric_limits<std::int32_t>::max()) return Error{ErrorCode::bad_request, "the text is larger than 2 GiB"};
  if (const auto at = find_invalid_utf8(text)) {
    return Error{ErrorCode::bad_request,
                 fmt::format("the text is not UTF-8: byte {} (0x{:02x}) begins no character", *at, static_cast<unsigned char>(text[*at]))};
  }
  std::vector<Token> ids;
  Bpe::Scratch scratch;
  for (std::size_t at = 0; at < text.size();) {
    const auto found = special_.find(text, at, parse_special);
    TROUPE_TRY(encode_plain(text.substr(at, (found ? found->at : text.size()) - at), at, scratch, ids));
    if (!found) break;
    ids.push_back(found->id);
    at = found->at + found->size;
  }
  return ids;
}

std::string Tokenizer::decode(std::span<const Token> ids) const {
  std::string text;
  const TokenTable& t = *table_;
  for (Token id : ids) {
    if (id >= vocab_) {
      text += "\xef\xbf\xbd";
    } else {
      text.append(t.bytes, t.offsets[id], t.offsets[id + 1] - t.offsets[id]);
    }
  }
  return text;
}

}  // namespace troupe::device
