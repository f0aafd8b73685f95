// A model's text side, from a file or a folder, and what is no model.
#include "device/models/load.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/device/models/tokenizer_golden.h"

namespace troupe::device {
namespace {

TEST(LoadText, FoldersAndFilesGiveTheSameIds) {
  for (const auto& [folder, file] : {std::pair{"tiny-llama3", "tiny-llama3.Q8_0.gguf"}, {"tiny-qwen2", "tiny-qwen2.Q8_0.gguf"}}) {
    const std::string path = std::string("tests/golden/") + folder;
    const auto from_folder = load_text(path), from_file = load_text(path + "/" + file);
    ASSERT_TRUE(from_folder) << from_folder.error().what;
    ASSERT_TRUE(from_file) << from_file.error().what;
    const auto golden = read_tokenizer_golden(folder);
    for (const ChatCase& c : golden.chats) {
      EXPECT_EQ(from_folder.value().encode_chat(c.messages).value(), c.ids);
      EXPECT_EQ(from_file.value().encode_chat(c.messages).value(), c.ids);
    }
    EXPECT_EQ(from_folder.value().encode_prompt("hi").value(), from_file.value().encode_prompt("hi").value());
    EXPECT_EQ(from_folder.value().table()->offsets.size(), 513u);
  }
}

TEST(LoadModel, FoldersOfEveryFamily) {
  LoadOptions options;
  options.threads = 1;
  for (const char* folder : {"tiny-llama", "tiny-llama3", "tiny-mistral", "tiny-mistral-swa", "tiny-qwen2", "tiny-qwen3"}) {
    const auto m = load_model(std::string("tests/golden/") + folder, options);
    ASSERT_TRUE(m) << m.error().what;
    EXPECT_EQ(m.value().model->info().vocab_size, 512u);
    EXPECT_EQ(m.value().model->info().tokens->offsets.size(), 513u);
    EXPECT_EQ(m.value().file.format, folder == std::string("tiny-llama") ? "safetensors, 2 files" : "safetensors, 1 file");
    ASSERT_EQ(m.value().file.tensors_by_type.size(), 1u);
    EXPECT_EQ(m.value().file.tensors_by_type[0].first, "BF16");
    EXPECT_TRUE(m.value().text.has_chat());
  }
}

TEST(LoadModel, WeightsThatDoNotFitTheConfigAreRefused) {
  const auto path = std::filesystem::path(testing::TempDir()) / "load_model_test";
  std::filesystem::remove_all(path);
  std::filesystem::create_directory(path);
  for (const char* file : {"config.json", "tokenizer.json", "tokenizer_config.json"}) {
    std::filesystem::copy_file(std::string("tests/golden/tiny-llama3/") + file, path / file);
  }
  const auto without = load_model(path.string());
  ASSERT_FALSE(without);
  EXPECT_NE(without.error().what.find("neither model.safetensors nor"), std::string::npos) << without.error().what;
  std::filesystem::copy_file("tests/golden/tiny-qwen2/model.safetensors", path / "model.safetensors");
  const auto others = load_model(path.string());
  ASSERT_FALSE(others);
  EXPECT_EQ(others.error().what, path.string() + ": tensor token_embd.weight has the shape [96, 512]; [64, 512] is expected");
  std::filesystem::remove_all(path);
}

TEST(LoadText, AFolderThatIsNoModelIsRefused) {
  const auto path = std::filesystem::path(testing::TempDir()) / "load_test";
  std::filesystem::remove_all(path);
  std::filesystem::create_directory(path);
  const auto empty = load_text(path.string());
  ASSERT_FALSE(empty);
  EXPECT_EQ(empty.error().what.find(path.string() + ": no config.json; a .gguf file, or a folder with"), 0u) << empty.error().what;
  std::filesystem::copy_file("tests/golden/tiny-llama3/config.json", path / "config.json");
  const auto no_tokenizer = load_text(path.string());
  ASSERT_FALSE(no_tokenizer);
  EXPECT_EQ(no_tokenizer.error().what.find((path / "tokenizer.json").string()), 0u) << no_tokenizer.error().what;
  std::ofstream(path / "tokenizer.json") << "{}";
  EXPECT_NE(load_text(path.string()).error().what.find("'model' is missing"), std::string::npos);
  std::filesystem::remove_all(path);
}

}  // namespace
}  // namespace troupe::device
