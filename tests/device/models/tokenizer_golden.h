// The tokenizer cases of a folder of tests/golden (see its README), and where the default model is.
#pragma once

#include <gtest/gtest.h>
#include <boost/json.hpp>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "device/models/chat_template.h"
#include "messages/ids.h"

namespace troupe::device {

struct TextCase {
  std::string text;
  std::vector<Token> ids;
  std::string decoded;
};
struct ChatCase {
  std::vector<ChatMessage> messages;
  std::string rendered;
  std::vector<Token> ids;
};
struct TokenizerGolden {
  std::vector<TextCase> texts;
  std::vector<ChatCase> chats;
};

inline TokenizerGolden read_tokenizer_golden(const std::string& folder) {
  std::ifstream in("tests/golden/" + folder + "/tokenizer_golden.json");
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  const auto root = boost::json::parse(text);
  TokenizerGolden out;
  for (const auto& c : root.at("texts").as_array()) {
    out.texts.push_back({boost::json::value_to<std::string>(c.at("text")), boost::json::value_to<std::vector<Token>>(c.at("ids")),
                         boost::json::value_to<std::string>(c.at("decoded"))});
  }
  auto add_chat = [&](const boost::json::value& c) {
    ChatCase chat;
    for (const auto& m : c.at("messages").as_array()) {
      chat.messages.push_back({boost::json::value_to<std::string>(m.at("role")), boost::json::value_to<std::string>(m.at("content"))});
    }
    chat.rendered = boost::json::value_to<std::string>(c.at("rendered"));
    chat.ids = boost::json::value_to<std::vector<Token>>(c.at("ids"));
    out.chats.push_back(std::move(chat));
  };
  const auto& chat = root.at("chat");
  if (chat.is_array()) {
    for (const auto& c : chat.as_array()) add_chat(c);
  } else {
    add_chat(chat);
  }
  return out;
}

// Empty: not there.
inline std::string default_model_path() {
  const char* path = std::getenv("TROUPE_DEFAULT_MODEL");
  return path != nullptr && std::ifstream(path).good() ? path : "";
}
inline constexpr const char* kNoDefaultModel =
    "the default model is not there: TROUPE_DEFAULT_MODEL is unset or names no file (tools/dev setup fetches it)";

}  // namespace troupe::device
