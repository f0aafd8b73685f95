// The text side of a safetensors folder: tokenizer.json (the `tokenizers` library's own format), and what
// tokenizer_config.json and chat_template.jinja add. Byte-level BPE alone is read, with a split that PreTokenizer has
// (recognised by its regular expression), with merges as strings or as pairs, with or without NFC.
//
// Memory is bounded by a small multiple of the files, which have at most 64 MiB each. Values only: any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "device/models/chat_template.h"
#include "device/models/tokenizer.h"
#include "messages/error.h"

namespace troupe::device {

struct TokenizerFiles {
  std::string folder;         // for errors
  std::string tokenizer;      // the text of tokenizer.json
  std::string config;         // of tokenizer_config.json; "": there is none
  std::string chat_template;  // of chat_template.jinja; "": there is none
  std::uint32_t vocab = 0;    // the model's: ids past the tokenizer's own are tokens without text
};

// io_failed, bad_file: a file that cannot be read; not_found: there is no tokenizer.json.
Result<TokenizerFiles> read_tokenizer_files(const std::string& folder);

// unsupported: another kind of tokenizer, or a part of one, that this build does not have; bad_file, not_found: names
// the file, the field and what was expected.
Result<Tokenizer> tokenizer_from_json(const TokenizerFiles& files);

// chat_template.jinja, else the field chat_template of tokenizer_config.json: a string, or an array of {name, template}
// of which "default" counts. not_found: neither; unsupported: not a shape that ChatTemplate knows.
Result<ChatTemplate> chat_template_from_json(const TokenizerFiles& files);

}  // namespace troupe::device
