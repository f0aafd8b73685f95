// Text to vocabulary ids and back: byte-level BPE. Built from its parts, which GGUF metadata (tokenizer.ggml.*) or a
// tokenizer.json (tokenizer_json.h) name.
//
// Immutable after creation: any thread may encode and decode.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "device/models/bpe.h"
#include "device/models/gguf.h"
#include "device/models/pretokenizer.h"
#include "device/models/special_tokens.h"
#include "messages/error.h"
#include "messages/ids.h"
#include "messages/model_info.h"
#include "messages/shared.h"

namespace troupe::device {

enum class TokenType : std::uint8_t { normal = 1, unknown, control, user_defined, unused, byte };  // the numbers are GGUF's

// What a tokenizer is made of. Views: into the file that they were read from.
struct TokenizerParts {
  std::string split;                                                  // PreTokenizer's name for it
  std::vector<std::string_view> tokens;                               // by id; each byte of a normal one written as GPT-2 does (encoder.py)
  std::vector<TokenType> types;                                       // as many
  std::vector<std::pair<std::string_view, std::string_view>> merges;  // in order of rank
  bool nfc = false;          // text is brought to Unicode's composed form first, special tokens aside
  bool whole_words = false;  // a word that is a token is that token, whatever merges would make of it
  std::vector<Token> eos_ids;
  std::optional<Token> bos_id;                          // only if it is to stand in front of a raw prompt
  std::string split_where, tokens_where, merges_where;  // begin errors: file and place
};

// Cuts a merge that is written as two tokens with a space between; none: it is not.
std::optional<std::pair<std::string_view, std::string_view>> cut_merge(std::string_view line);

class Tokenizer {
 public:
  // unsupported: another split. bad_file: parts that contradict each other; names the place and the entry.
  static Result<Tokenizer> build(const TokenizerParts& parts);
  // unsupported: another kind of tokenizer, or another split. bad_file, not_found: metadata that is missing or
  // contradicts itself; names the key and the entry.
  static Result<Tokenizer> from_gguf(const GgufFile& file);

  // The ids of `text`; nothing is added in front or behind. With `parse_special` the text of a control token stands for
  // that token (a rendered chat); without it, it is plain text (what a user typed). bad_request: `text` is not UTF-8
  // (names the byte offset), is larger than 2 GiB, or has a byte for which the vocabulary has no token.
  Result<std::vector<Token>> encode(std::string_view text, bool parse_special) const;

  // The bytes of the ids, special tokens included. They need not be UTF-8: a character may span tokens. An id outside
  // the vocabulary gives U+FFFD.
  std::string decode(std::span<const Token> ids) const;

  std::uint32_t vocab_size() const { return vocab_; }
  // Bytes per id; control, unknown and unused tokens are marked as without text.
  Shared<TokenTable> table() const { return table_; }
  const std::vector<Token>& eos_ids() const { return eos_ids_; }  // each ends a reply; ascending
  const std::vector<Token>& bos_ids() const { return bos_ids_; }  // what the model wants in front of a raw prompt: 0 or 1 id

 private:
  Tokenizer(PreTokenizer pre, Bpe bpe) : pre_(std::move(pre)), bpe_(std::move(bpe)) {}

  std::optional<Token> whole_word(std::string_view word) const;
  // Text without special tokens, which begins at byte `begin` of the whole.
  Result<void> encode_plain(std::string_view text, std::size_t begin, Bpe::Scratch& scratch, std::vector<Token>& ids) const;

  PreTokenizer pre_;
  Bpe bpe_;
  bool nfc_ = false;
  std::vector<Token> words_;  // by their bytes; empty: merges alone make words
  SpecialTokens special_;
  std::uint32_t vocab_ = 0;
  Shared<TokenTable> table_;
  std::vector<Token> eos_ids_;
  std::vector<Token> bos_ids_;
};

}  // namespace troupe::device
