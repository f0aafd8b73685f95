#include "device/models/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

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

Error bad(const GgufFile& file, std::string what) { return {ErrorCode::bad_file, file.path() + ": " + std::move(what)}; }

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

Result<std::vector<Bpe::Merge>> read_merges(const GgufFile& file, const Vocabulary& vocabulary) {
  constexpr const char* kKey = "tokenizer.ggml.merges";
  TROUPE_TRY(auto lines, file.get_strings(kKey));
  std::vector<Bpe::Merge> merges;
  merges.reserve(lines.size());
  std::string joined;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto space = lines[i].find(' ', 1);
    if (space == std::string_view::npos) return bad(file, fmt::format("key '{}', entry {}: two tokens with a space between expected", kKey, i));
    const auto left = lines[i].substr(0, space), right = lines[i].substr(space + 1);
    joined.assign(left).append(right);
    const auto l = vocabulary.find(left), r = vocabulary.find(right), m = vocabulary.find(joined);
    if (!l || !r || !m) return bad(file, fmt::format("key '{}', entry {}: it names or makes a token that is not in the vocabulary", kKey, i));
    merges.push_back({*l, *r, *m});
  }
  return merges;
}

// The id under `key`, if the file has it.
Result<std::optional<Token>> optional_id(const GgufFile& file, const char* key, std::size_t vocab) {
  if (!file.has(key)) return std::optional<Token>();
  TROUPE_TRY(auto id, file.get_uint(key));
  if (id >= vocab) return bad(file, fmt::format("key '{}': id {} is outside the vocabulary of {}", key, id, vocab));
  return std::optional<Token>(static_cast<Token>(id));
}

}  // namespace

Result<Tokenizer> Tokenizer::from_gguf(const GgufFile& file) {
  TROUPE_TRY(auto model, file.get_string("tokenizer.ggml.model"));
  if (model != "gpt2") {
    return Error{ErrorCode::unsupported, fmt::format("{}: tokenizer '{}'; only byte-level BPE ('gpt2') is read", file.path(), model.substr(0, 40))};
  }
  // A file without the name of its split was written before there were names, when the split was GPT-2's.
  std::string_view split = "gpt-2";
  if (file.has("tokenizer.ggml.pre")) {
    TROUPE_TRY(auto named, file.get_string("tokenizer.ggml.pre"));
    if (named != "default") split = named;
  }
  auto pre = PreTokenizer::named(split);
  if (!pre) return Error{pre.error().code, file.path() + ": key 'tokenizer.ggml.pre': " + pre.error().what};

  TROUPE_TRY(auto written, file.get_strings("tokenizer.ggml.tokens"));
  if (written.empty() || written.size() >= std::numeric_limits<Token>::max()) {
    return bad(file, fmt::format("key 'tokenizer.ggml.tokens': a vocabulary of {}", written.size()));
  }
  std::vector<Type> types(written.size(), Type::normal);
  if (file.has("tokenizer.ggml.token_type")) {
    TROUPE_TRY(auto numbers, file.get_ints("tokenizer.ggml.token_type"));
    if (numbers.size() != types.size()) {
      return bad(file, fmt::format("key 'tokenizer.ggml.token_type': {} entries for a vocabulary of {}", numbers.size(), types.size()));
    }
    for (std::size_t i = 0; i < types.size(); ++i) {
      if (numbers[i] < 1 || numbers[i] > 6) return bad(file, fmt::format("key 'tokenizer.ggml.token_type', entry {}: {} is not 1 to 6", i, numbers[i]));
      types[i] = static_cast<Type>(numbers[i]);
    }
  }

  SpecialTokens special;
  TokenTable table;
  table.offsets.push_back(0);
  for (std::size_t i = 0; i < written.size(); ++i) {
    const bool recognised = types[i] == Type::control || types[i] == Type::user_defined;
    if (recognised && !written[i].empty()) {
      if (find_invalid_utf8(written[i])) return bad(file, fmt::format("key 'tokenizer.ggml.tokens', entry {}: a special token that is not UTF-8", i));
      special.add(written[i], static_cast<Token>(i), types[i] == Type::control ? SpecialTokens::Kind::control : SpecialTokens::Kind::user_defined);
    }
    const auto bytes = recognised ? std::nullopt : unwrite(written[i]);
    table.bytes += bytes ? std::string_view(*bytes) : written[i];
    if (table.bytes.size() > std::numeric_limits<std::uint32_t>::max()) return bad(file, "key 'tokenizer.ggml.tokens': more than 4 GiB of text");
    table.offsets.push_back(static_cast<std::uint32_t>(table.bytes.size()));
    table.special.push_back(types[i] == Type::control || types[i] == Type::unknown || types[i] == Type::unused);
  }

  const Vocabulary vocabulary(written);
  TROUPE_TRY(auto merges, read_merges(file, vocabulary));
  Bpe::ByteIds byte_ids;
  for (std::size_t c = 0; c < kAlphabet.byte_of.size(); ++c) {
    if (kAlphabet.byte_of[c] < 0) continue;
    std::string text;
    if (c < 0x80) {
      text = {static_cast<char>(c)};
    } else {
      text = {static_cast<char>(0xc0 | c >> 6), static_cast<char>(0x80 | (c & 0x3f))};
    }
    byte_ids[static_cast<std::size_t>(kAlphabet.byte_of[c])] = vocabulary.find(text);
  }

  Tokenizer t(std::move(pre).value(), Bpe(byte_ids, merges));
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    TROUPE_TRY(auto id, optional_id(file, key, written.size()));
    if (id) t.eos_ids_.push_back(*id);
  }
  std::sort(t.eos_ids_.begin(), t.eos_ids_.end());
  t.eos_ids_.erase(std::unique(t.eos_ids_.begin(), t.eos_ids_.end()), t.eos_ids_.end());
  if (file.has("tokenizer.ggml.add_bos_token")) {
    TROUPE_TRY(auto add, file.get_bool("tokenizer.ggml.add_bos_token"));
    TROUPE_TRY(auto id, optional_id(file, "tokenizer.ggml.bos_token_id", written.size()));
    if (add && !id) return bad(file, "key 'tokenizer.ggml.bos_token_id' is missing, but add_bos_token is set");
    if (add) t.bos_ids_.push_back(*id);
  }
  t.special_ = std::move(special);
  t.types_ = std::move(types);
  t.table_ = Shared<TokenTable>::of(std::move(table));
  return t;
}

Result<std::vector<Token>> Tokenizer::encode(std::string_view text, bool parse_special) const {
  if (text.size() > std::numeric_limits<std::int32_t>::max()) return Error{ErrorCode::bad_request, "the text is larger than 2 GiB"};
  if (const auto at = find_invalid_utf8(text)) {
    return Error{ErrorCode::bad_request, fmt::format("the text is not UTF-8: byte {} (0x{:02x}) begins no character", *at,
                                                     static_cast<unsigned char>(text[*at]))};
  }
  std::vector<Token> ids;
  Bpe::Scratch scratch;
  for (std::size_t at = 0; at < text.size();) {
    const auto found = special_.find(text, at, parse_special);
    TROUPE_TRY(auto words, pre_.split(text.substr(at, (found ? found->at : text.size()) - at)));
    for (std::string_view word : words) {
      if (const auto missing = bpe_.encode(word, scratch, ids)) {
        return Error{ErrorCode::bad_request, fmt::format("the vocabulary has no token for byte {} (0x{:02x}) of the text",
                                                         static_cast<std::size_t>(word.data() - text.data()) + *missing,
                                                         static_cast<unsigned char>(word[*missing]))};
      }
    }
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
    if (id >= types_.size()) {
      text += "\xef\xbf\xbd";
    } else {
      text.append(t.bytes, t.offsets[id], t.offsets[id + 1] - t.offsets[id]);
    }
  }
  return text;
}

}  // namespace troupe::device
