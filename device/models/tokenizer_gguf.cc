#include <fmt/format.h>

#include "device/models/tokenizer.h"

namespace troupe::device {

namespace {

Error bad(const GgufFile& file, std::string what) { return {ErrorCode::bad_file, file.path() + ": " + std::move(what)}; }

// The id under `key`, if the file has it.
Result<std::optional<Token>> optional_id(const GgufFile& file, const char* key, std::size_t vocab) {
  if (!file.has(key)) return std::optional<Token>();
  TROUPE_TRY(auto id, file.get_uint(key));
  if (id >= vocab) return bad(file, fmt::format("key '{}': id {} is outside the vocabulary of {}", key, id, vocab));
  return std::optional<Token>(static_cast<Token>(id));
}

// The names that llama.cpp writes, and what they mean here.
struct Pre {
  std::string_view written, split;
};
constexpr Pre kPres[] = {{"default", "gpt-2"}, {"llama3", "llama-bpe"}, {"llama-v3", "llama-bpe"}, {"deepseek-r1-qwen", "qwen2"}};

}  // namespace

std::optional<std::pair<std::string_view, std::string_view>> cut_merge(std::string_view line) {
  const auto space = line.find(' ', 1);
  if (space == std::string_view::npos) return std::nullopt;
  return std::pair(line.substr(0, space), line.substr(space + 1));
}

Result<Tokenizer> Tokenizer::from_gguf(const GgufFile& file) {
  TROUPE_TRY(auto model, file.get_string("tokenizer.ggml.model"));
  if (model != "gpt2") {
    return Error{ErrorCode::unsupported,
                 fmt::format("{}: tokenizer '{}'; only byte-level BPE ('gpt2') is read", file.path(), model.substr(0, 40))};
  }
  TokenizerParts parts;
  // A file without the name of its split was written before there were names, when the split was GPT-2's.
  parts.split = "gpt-2";
  if (file.has("tokenizer.ggml.pre")) {
    TROUPE_TRY(auto named, file.get_string("tokenizer.ggml.pre"));
    parts.split = named;
    for (const Pre& p : kPres) {
      if (p.written == named) parts.split = p.split;
    }
  }
  // GGUF has no keys for these two: they go with the split.
  parts.nfc = parts.split == "qwen2";
  parts.whole_words = parts.split == "llama-bpe";
  parts.split_where = file.path() + ": key 'tokenizer.ggml.pre'";
  parts.tokens_where = file.path() + ": key 'tokenizer.ggml.tokens'";
  parts.merges_where = file.path() + ": key 'tokenizer.ggml.merges'";

  TROUPE_TRY(parts.tokens, file.get_strings("tokenizer.ggml.tokens"));
  const std::size_t vocab = parts.tokens.size();
  if (vocab == 0) return Error{ErrorCode::bad_file, parts.tokens_where + ": a vocabulary of 0"};
  parts.types.assign(vocab, TokenType::normal);
  if (file.has("tokenizer.ggml.token_type")) {
    TROUPE_TRY(auto numbers, file.get_ints("tokenizer.ggml.token_type"));
    if (numbers.size() != vocab) {
      return bad(file, fmt::format("key 'tokenizer.ggml.token_type': {} entries for a vocabulary of {}", numbers.size(), vocab));
    }
    for (std::size_t i = 0; i < vocab; ++i) {
      if (numbers[i] < 1 || numbers[i] > 6)
        return bad(file, fmt::format("key 'tokenizer.ggml.token_type', entry {}: {} is not 1 to 6", i, numbers[i]));
      parts.types[i] = static_cast<TokenType>(numbers[i]);
    }
  }
  TROUPE_TRY(auto lines, file.get_strings("tokenizer.ggml.merges"));
  parts.merges.reserve(lines.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto pair = cut_merge(lines[i]);
    if (!pair) {
      return Error{ErrorCode::bad_file, fmt::format("{}, entry {}: two tokens with a space between expected", parts.merges_where, i)};
    }
    parts.merges.push_back(*pair);
  }
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    TROUPE_TRY(auto id, optional_id(file, key, vocab));
    if (id) parts.eos_ids.push_back(*id);
  }
  if (file.has("tokenizer.ggml.add_bos_token")) {
    TROUPE_TRY(auto add, file.get_bool("tokenizer.ggml.add_bos_token"));
    TROUPE_TRY(auto id, optional_id(file, "tokenizer.ggml.bos_token_id", vocab));
    if (add && !id) return bad(file, "key 'tokenizer.ggml.bos_token_id' is missing, but add_bos_token is set");
    if (add) parts.bos_id = id;
  }
  return build(parts);
}

}  // namespace troupe::device
