// libFuzzer: a tokenizer.json, and after a byte 0 a tokenizer_config.json, are either refused with a reason, or make a
// tokenizer that takes a text, whose ids are inside its vocabulary, and perhaps a chat template that renders.
#include <cstdlib>

#include "device/models/tokenizer_json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe::device;
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const std::size_t cut = all.find('\0');
  TokenizerFiles files;
  files.folder = "fuzz";
  files.tokenizer = all.substr(0, cut);
  if (cut != all.npos) files.config = all.substr(cut + 1);
  if (const auto chat = chat_template_from_json(files)) {
    const ChatMessage message{"user", " hi "};
    if (!chat.value().render({&message, 1})) std::abort();
  } else if (chat.error().what.empty()) {
    std::abort();
  }
  const auto t = tokenizer_from_json(files);
  if (!t) {
    if (t.error().what.empty()) std::abort();
    return 0;
  }
  const auto ids = t.value().encode("it's 2024:  e\xcc\x81 <|im_end|>\n", true);
  if (!ids) return 0;
  for (const troupe::Token id : ids.value()) {
    if (id >= t.value().vocab_size()) std::abort();
  }
  (void)t.value().decode(ids.value());
  return 0;
}
