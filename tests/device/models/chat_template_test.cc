#include "device/models/chat_template.h"

#include <gtest/gtest.h>

#include "tests/device/models/tokenizer_golden.h"

namespace troupe::device {
namespace {

void expect_golden(const std::string& path, const std::string& folder) {
  auto file = GgufFile::open(path);
  ASSERT_TRUE(file) << file.error().what;
  auto t = ChatTemplate::from_gguf(file.value());
  ASSERT_TRUE(t) << t.error().what;
  const auto golden = read_tokenizer_golden(folder);
  ASSERT_FALSE(golden.chats.empty());
  for (const auto& c : golden.chats) EXPECT_EQ(t.value().render(c.messages).value(), c.rendered);
}

TEST(ChatTemplate, TinyLlamaGolden) { expect_golden("tests/golden/tiny-llama/tiny-llama.F32.gguf", "tiny-llama"); }

TEST(ChatTemplate, DefaultModelGolden) {
  const std::string path = default_model_path();
  if (path.empty()) GTEST_SKIP() << kNoDefaultModel;
  expect_golden(path, "smollm2");
}

// The default model's, so that the shape is tested without the model.
constexpr const char* kSystem =
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nBe kind<|im_end|>\n' }}"
    "{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

TEST(ChatTemplate, DefaultSystemTextOnlyWithoutASystemMessage) {
  const auto t = ChatTemplate::parse(kSystem).value();
  EXPECT_EQ(t.render(std::vector<ChatMessage>{{"user", "hi"}}).value(),
            "<|im_start|>system\nBe kind<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(t.render(std::vector<ChatMessage>{{"system", "s"}, {"user", "hi"}}).value(),
            "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
  // Only the first message counts.
  EXPECT_EQ(
      t.render(std::vector<ChatMessage>{{"user", "hi"}, {"system", "s"}}).value(),
      "<|im_start|>system\nBe kind<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>system\ns<|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatTemplate, WritingsOfTheSameShape) {
  const std::vector<ChatMessage> chat{{"user", "hi"}, {"assistant", " {{ 'x' }} "}};
  const std::string want = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n {{ 'x' }} <|im_end|>\n<|im_start|>assistant\n";
  for (
      const char* source : {
          R"({% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %})",
          R"({%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %})",
          "{% for m in messages %}<|im_start|>{{ m.role }}{{ \"\\n\" }}{{ m[\"content\"] }}<|im_end|>{{ '\\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
      }) {
    const auto t = ChatTemplate::parse(source);
    ASSERT_TRUE(t) << t.error().what;
    EXPECT_EQ(t.value().render(chat).value(), want) << source;
  }
}

TEST(ChatTemplate, Llama3) {
  const std::vector<ChatMessage> chat{{"system", "\xc2\xa0 be brief\n"}, {"user", " two\nlines\xe3\x80\x80"}};
  const std::string want =
      "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nbe "
      "brief<|eot_id|><|start_header_id|>user<|end_header_id|>\n\ntwo\nlines"
      "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n";
  for (
      const char* source : {
          // As Meta published it with Llama 3.
          R"({% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %})",
          R"({{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n' + m['content'] | trim + '<|eot_id|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %})",
      }) {
    const auto t = ChatTemplate::parse(source, {"<|begin_of_text|>", "<|eot_id|>"});
    ASSERT_TRUE(t) << t.error().what;
    EXPECT_EQ(t.value().render(chat).value(), want) << source;
  }
}

TEST(ChatTemplate, WithoutAnOpenedReply) {
  const auto t = ChatTemplate::parse("{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}").value();
  EXPECT_EQ(t.render(std::vector<ChatMessage>{{"user", "hi"}}).value(), "user: hi\n");
}

TEST(ChatTemplate, OthersAreRefusedWithTheirStart) {
  for (const char* source : {
           "",
           "plain text",
           "{% for m in messages %}",
           "{% for m in messages %}{{ m.role }}{% endfor %}",
           "{% for m in messages %}{{ m.role + m.content }}{% endfor %}tail",
           "{% for m in messages %}{{ m.role + n.content }}{% endfor %}",
           "{% for m in messages %}{{ m.role + m.content }}{% endfor %}{% if true %}{{ 'x' }}{% endif %}",
           "{% for m in messages %}{% if loop.first and messages[0].role == 'system' %}{{ 'x' }}{% endif %}{{ m.role + m.content }}{% "
           "endfor %}",
           "{% for m in messages %}{{ m.role + m.content | upper }}{% endfor %}",
           "{% for m in messages %}{{ m.role | trim + m.content }}{% endfor %}",
           "{{ tools }}{% for m in messages %}{{ m.role + m.content }}{% endfor %}",
           "{% for m in messages %}{{ 'unclosed",
           "{% for m in messages %}{{ 'x\\",
           "{%",
           "{{",
       }) {
    const auto t = ChatTemplate::parse(source);
    ASSERT_FALSE(t) << source;
    EXPECT_EQ(t.error().code, ErrorCode::unsupported);
    EXPECT_NE(t.error().what.find("It begins: " + std::string(source).substr(0, 120)), std::string::npos) << t.error().what;
  }
  const auto t = ChatTemplate::parse(std::string(500, 'x'));
  EXPECT_NE(t.error().what.find(std::string(120, 'x') + "..."), std::string::npos);
}

TEST(ChatTemplate, EveryTruncationIsRefusedOrLacksOnlyTheReply) {
  const std::string_view whole = kSystem;
  std::size_t accepted = 0;
  for (std::size_t n = 0; n < whole.size(); ++n) accepted += ChatTemplate::parse(whole.substr(0, n)).has_value();
  EXPECT_EQ(accepted, 1u);
}

TEST(ChatTemplate, NoMessageIsABadRequest) {
  EXPECT_EQ(ChatTemplate::parse(kSystem).value().render({}).error().code, ErrorCode::bad_request);
}

}  // namespace
}  // namespace troupe::device
