// Renders chat messages to the text a model was trained on. Not a Jinja interpreter: it recognises templates of one
// shape (ChatML and Llama 3's, and their kin) and refuses the rest. The shape: optionally the text of bos_token; a loop
// over `messages` that writes literals, the role and the content (or its trimmed form) of each; optionally, in front of
// the first, a literal where the first is no system message; then, optionally, a literal that opens the reply.
//
// Immutable after creation: any thread may render.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/models/gguf.h"
#include "messages/error.h"

namespace troupe::device {

struct ChatMessage {
  std::string role;
  std::string content;
};

// What a template calls bos_token and eos_token: "" where the model has none.
struct ChatTokens {
  std::string_view bos, eos;
};

class ChatTemplate {
 public:
  // Reads tokenizer.chat_template. not_found: the file has none (a base model). unsupported: quotes its start.
  static Result<ChatTemplate> from_gguf(const GgufFile& file);
  static Result<ChatTemplate> parse(std::string_view source, const ChatTokens& tokens = {});

  // The messages, and what opens the model's reply. The text's special tokens are meant: encode it with parse_special.
  // bad_request: no message.
  Result<std::string> render(std::span<const ChatMessage> messages) const;

 private:
  struct Part {
    enum class Kind : std::uint8_t { literal, role, content, trimmed_content };
    Kind kind = Kind::literal;
    std::string text;  // of a literal
  };
  friend class ChatTemplateParser;

  std::string begin_;           // written before all else
  std::string default_system_;  // written first when the first message is no system message
  std::vector<Part> message_;   // written for each message
  std::string reply_;           // written last
};

}  // namespace troupe::device
