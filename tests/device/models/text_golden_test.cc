// Text to ids, ids to text, and chats, of every model in tests/golden, from its GGUF and from its tokenizer.json alike.
#include <gtest/gtest.h>

#include "device/models/tokenizer_json.h"
#include "tests/device/models/tokenizer_golden.h"

namespace troupe::device {
namespace {

struct Model {
  const char* folder;
  const char* gguf;  // "" = the model has a tokenizer.json alone
  std::vector<Token> bos;
};
const Model kModels[] = {
    {"tiny-llama", "tiny-llama.Q8_0.gguf", {}},
    {"tiny-llama-k", "tiny-llama-k.Q4_K.gguf", {}},
    {"tiny-llama3", "tiny-llama3.Q8_0.gguf", {0}},
    {"tiny-qwen2", "tiny-qwen2.Q8_0.gguf", {}},
    {"tiny-qwen3", "tiny-qwen3.BF16.gguf", {}},
    {"tiny-mistral", "", {0}},
    {"tiny-mistral-swa", "", {0}},
};

class TextGolden : public testing::TestWithParam<Model> {};

void expect_golden(const Tokenizer& t, const ChatTemplate& chat, const TokenizerGolden& golden) {
  for (const TextCase& c : golden.texts) {
    const auto ids = t.encode(c.text, true);
    ASSERT_TRUE(ids) << ids.error().what;
    EXPECT_EQ(ids.value(), c.ids) << "text: " << c.text;
    EXPECT_EQ(t.decode(c.ids), c.decoded);
  }
  for (const ChatCase& c : golden.chats) {
    EXPECT_EQ(chat.render(c.messages).value(), c.rendered);
    EXPECT_EQ(t.encode(c.rendered, true).value(), c.ids) << c.rendered;
  }
}

TEST_P(TextGolden, FromTokenizerJson) {
  const Model& m = GetParam();
  auto files = read_tokenizer_files(std::string("tests/golden/") + m.folder);
  ASSERT_TRUE(files) << files.error().what;
  files.value().vocab = 512;
  const auto t = tokenizer_from_json(files.value());
  ASSERT_TRUE(t) << t.error().what;
  const auto chat = chat_template_from_json(files.value());
  ASSERT_TRUE(chat) << chat.error().what;
  const auto golden = read_tokenizer_golden(m.folder);
  ASSERT_EQ(golden.texts.size(), 59u);
  ASSERT_EQ(golden.chats.size(), 1u);
  expect_golden(t.value(), chat.value(), golden);
  EXPECT_EQ(t.value().vocab_size(), 512u);
  EXPECT_EQ(t.value().table()->offsets.size(), 513u);
  EXPECT_EQ(t.value().bos_ids(), m.bos);
  EXPECT_EQ(t.value().eos_ids(), std::vector<Token>{m.bos.empty() ? 2u : 4u});
}

TEST_P(TextGolden, FromGguf) {
  const Model& m = GetParam();
  if (*m.gguf == '\0') GTEST_SKIP() << "the model has no GGUF file";
  const auto file = GgufFile::open(std::string("tests/golden/") + m.folder + "/" + m.gguf);
  ASSERT_TRUE(file) << file.error().what;
  const auto t = Tokenizer::from_gguf(file.value());
  ASSERT_TRUE(t) << t.error().what;
  const auto chat = ChatTemplate::from_gguf(file.value());
  ASSERT_TRUE(chat) << chat.error().what;
  expect_golden(t.value(), chat.value(), read_tokenizer_golden(m.folder));
  EXPECT_EQ(t.value().bos_ids(), m.bos);
}

INSTANTIATE_TEST_SUITE_P(Models, TextGolden, testing::ValuesIn(kModels), [](const auto& info) {
  std::string name = info.param.folder;
  for (char& c : name) c = c == '-' ? '_' : c;
  return name;
});

}  // namespace
}  // namespace troupe::device
