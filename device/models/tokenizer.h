// Text to vocabulary ids and back: byte-level BPE. Built from GGUF metadata (tokenizer.ggml.*); the parts (split,
// merges, special tokens) know nothing of GGUF.
//
// Immutable after creation: any thread may encode and decode.
#pragma once

#include <span>
#include <string>
#include <string_view>
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

class Tokenizer {
 public:
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

  std::uint32_t vocab_size() const { return static_cast<std::uint32_t>(types_.size()); }
  // Bytes per id; control, unknown and unused tokens are marked as without text.
  Shared<TokenTable> table() const { return table_; }
  const std::vector<Token>& eos_ids() const { return eos_ids_; }  // each ends a reply; ascending
  const std::vector<Token>& bos_ids() const { return bos_ids_; }  // what the model wants in front of a raw prompt: 0 or 1 id

 private:
  enum class Type : std::uint8_t { normal = 1, unknown, control, user_defined, unused, byte };
  Tokenizer(PreTokenizer pre, Bpe bpe) : pre_(std::move(pre)), bpe_(std::move(bpe)) {}

  PreTokenizer pre_;
  Bpe bpe_;
  SpecialTokens special_;
  std::vector<Type> types_;
  Shared<TokenTable> table_;
  std::vector<Token> eos_ids_;
  std::vector<Token> bos_ids_;
};

}  // namespace troupe::device
