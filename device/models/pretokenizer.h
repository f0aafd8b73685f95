// Splits text into the words that byte-pair merges may not cross. A rule is a list of regular expressions: each splits
// the pieces that the one before it left into its matches and what lies between them; look-ahead ends at the piece.
//
// Immutable after creation: any thread may split.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "messages/error.h"

namespace troupe::device {

class PreTokenizer {
 public:
  // By the name that GGUF gives the rule (tokenizer.ggml.pre): "gpt-2", "smollm", "llama-bpe" and "qwen2". unsupported: another one.
  static Result<PreTokenizer> named(std::string_view name);
  ~PreTokenizer();
  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;

  // The words of `text`, which must be UTF-8, in order; together they are all of it. Time is linear in its length.
  Result<std::vector<std::string_view>> split(std::string_view text) const;

 private:
  struct Code;
  explicit PreTokenizer(std::vector<Code> codes);
  std::vector<Code> codes_;
};

}  // namespace troupe::device
