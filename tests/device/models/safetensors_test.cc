#include "device/models/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "device/models/model_config.h"

namespace troupe::device {
namespace {

// A file: size of the header, the header, `data` bytes that count up.
std::vector<std::byte> file_of(std::string header, std::size_t data, bool pad = true) {
  while (pad && header.size() % 8 != 0) header += ' ';
  std::vector<std::byte> out(8 + header.size() + data);
  const std::uint64_t size = header.size();
  std::memcpy(out.data(), &size, 8);
  std::memcpy(out.data() + 8, header.data(), size);
  for (std::size_t i = 0; i < data; ++i) out[8 + size + i] = static_cast<std::byte>(i);
  return out;
}

constexpr const char* kSound = R"({"__metadata__":{"format":"pt"},"model.norm.weight":{"dtype":"BF16","shape":[4],"data_offsets":[16,24]},)"
                               R"("lm_head.weight":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})";

Result<SafetensorsModel> parse(const std::vector<std::byte>& bytes) { return SafetensorsModel::parse(bytes, "t.safetensors"); }

TEST(Safetensors, ReadsTensorsUnderGgufNames) {
  const auto bytes = file_of(kSound, 24);
  auto m = parse(bytes);
  ASSERT_TRUE(m) << m.error().what;
  EXPECT_EQ(m.value().tensors().size(), 2u);
  const StoredTensor* out = m.value().tensor("output.weight");
  ASSERT_NE(out, nullptr);
  EXPECT_EQ(out->type, TensorType::F32);
  EXPECT_EQ(out->dims, (std::vector<std::uint64_t>{2, 2}));
  EXPECT_EQ(out->bytes, 16u);
  const StoredTensor* norm = m.value().tensor("output_norm.weight");
  ASSERT_NE(norm, nullptr);
  EXPECT_EQ(norm->type, TensorType::BF16);
  EXPECT_EQ(std::to_integer<int>(norm->data[0]), 16);
  EXPECT_EQ(m.value().tensor("lm_head.weight"), nullptr);
  const SafetensorsModel moved = std::move(m).value();
  EXPECT_EQ(moved.tensor("output.weight")->name, "output.weight");
}

TEST(Safetensors, DimsAreReversed) {
  const auto bytes =
      file_of(R"({"x":{"dtype":"F16","shape":[3,4],"data_offsets":[0,24]},"s":{"dtype":"F16","shape":[],"data_offsets":[24,26]}})", 26);
  const auto m = parse(bytes);
  ASSERT_TRUE(m) << m.error().what;
  EXPECT_EQ(m.value().tensor("x")->dims, (std::vector<std::uint64_t>{4, 3}));
  EXPECT_EQ(m.value().tensor("s")->dims, (std::vector<std::uint64_t>{1}));
}

TEST(Safetensors, Names) {
  EXPECT_EQ(gguf_tensor_name("model.embed_tokens.weight"), "token_embd.weight");
  EXPECT_EQ(gguf_tensor_name("model.layers.0.self_attn.q_proj.bias"), "blk.0.attn_q.bias");
  EXPECT_EQ(gguf_tensor_name("model.layers.17.self_attn.k_norm.weight"), "blk.17.attn_k_norm.weight");
  EXPECT_EQ(gguf_tensor_name("model.layers.3.self_attn.o_proj.weight"), "blk.3.attn_output.weight");
  EXPECT_EQ(gguf_tensor_name("model.layers.3.input_layernorm.weight"), "blk.3.attn_norm.weight");
  EXPECT_EQ(gguf_tensor_name("model.layers.3.post_attention_layernorm.weight"), "blk.3.ffn_norm.weight");
  EXPECT_EQ(gguf_tensor_name("model.layers.3.mlp.down_proj.weight"), "blk.3.ffn_down.weight");
  EXPECT_EQ(gguf_tensor_name("model.layers.2.linear_attn.in_proj_qkv.weight"), "blk.2.attn_qkv.weight");
  EXPECT_EQ(gguf_tensor_name("model.layers.2.linear_attn.A_log"), "blk.2.ssm_a_log");
  EXPECT_EQ(gguf_tensor_name("model.language_model.embed_tokens.weight"), "token_embd.weight");
  EXPECT_EQ(gguf_tensor_name("model.language_model.layers.2.linear_attn.dt_bias"), "blk.2.ssm_dt.bias");
  EXPECT_EQ(gguf_tensor_name("model.language_model.layers.17.self_attn.q_proj.weight"), "blk.17.attn_q.weight");
  EXPECT_EQ(gguf_tensor_name("model.language_model.norm.weight"), "output_norm.weight");
  for (const char* other :
       {"", "model.layers.", "model.layers..mlp.down_proj.weight", "model.layers.3", "model.layers.3.", "model.layers.3.weight",
        "model.layers.3.self_attn.rotary_emb.inv_freq", "model.layers.x.mlp.down_proj.weight"}) {
    EXPECT_EQ(gguf_tensor_name(other), other);
  }
}

struct Bad {
  const char* name;
  std::string header;
  std::size_t data;
  ErrorCode code;
  std::vector<const char*> words;
};
class SafetensorsBad : public testing::TestWithParam<Bad> {};

TEST_P(SafetensorsBad, IsRefusedWithItsPlaceAndTheExpectation) {
  const Bad& b = GetParam();
  const auto bytes = file_of(b.header, b.data);
  const auto m = parse(bytes);
  ASSERT_FALSE(m);
  EXPECT_EQ(m.error().code, b.code) << m.error().what;
  EXPECT_EQ(m.error().what.find("t.safetensors: "), 0u) << m.error().what;
  for (const char* w : b.words) EXPECT_NE(m.error().what.find(w), std::string::npos) << "\"" << w << "\" in: " << m.error().what;
}

std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"a.b":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}
const Bad kBad[] = {
    {"not_json", "{x", 0, ErrorCode::bad_file, {"header", "byte 1", "JSON"}},
    {"no_object", "[]", 0, ErrorCode::bad_file, {"byte 8", "'{'"}},
    {"tail", "{}{}", 0, ErrorCode::bad_file, {"header", "JSON"}},
    {"deep", "{\"a\":" + std::string(100, '[') + std::string(100, ']') + "}", 0, ErrorCode::bad_file, {"header", "JSON"}},
    {"entry", R"({"a.b":[1]})", 0, ErrorCode::bad_file, {"tensor 'a.b'", "object", "[1]"}},
    {"no_dtype", R"({"a.b":{"shape":[1],"data_offsets":[0,4]}})", 4, ErrorCode::not_found, {"tensor 'a.b'", "'dtype' is missing"}},
    {"dtype", one("\"F8_E4M3\"", "[4]", "[0,4]"), 4, ErrorCode::unsupported, {"tensor 'a.b'", "F8_E4M3", "BF16"}},
    {"no_shape", R"({"a.b":{"dtype":"F32","data_offsets":[0,4]}})", 4, ErrorCode::not_found, {"tensor 'a.b'", "'shape' is missing"}},
    {"negative", one("\"F32\"", "[-1]", "[0,4]"), 4, ErrorCode::bad_file, {"'shape' is [-1]"}},
    {"zero", one("\"F32\"", "[0]", "[0,0]"), 0, ErrorCode::bad_file, {"'shape' is [0]"}},
    {"fraction", one("\"F32\"", "[1.5]", "[0,4]"), 4, ErrorCode::bad_file, {"'shape'"}},
    {"dims", one("\"F32\"", "[1,1,1,1,1]", "[0,4]"), 4, ErrorCode::bad_file, {"'shape'", "at most 4"}},
    {"absurd", one("\"F32\"", "[4294967296,4294967296]", "[0,4]"), 4, ErrorCode::bad_file, {"'shape'", "2^60"}},
    {"absurd_one", one("\"F32\"", "[18446744073709551615]", "[0,4]"), 4, ErrorCode::bad_file, {"'shape'"}},
    {"no_offsets", R"({"a.b":{"dtype":"F32","shape":[1]}})", 4, ErrorCode::not_found, {"'data_offsets' is missing"}},
    {"three", one("\"F32\"", "[1]", "[0,4,8]"), 4, ErrorCode::bad_file, {"'data_offsets' is [0,4,8]"}},
    {"backwards", one("\"F32\"", "[1]", "[4,0]"), 4, ErrorCode::bad_file, {"'data_offsets' is [4,0]"}},
    {"past_the_end", one("\"F32\"", "[2]", "[0,8]"), 4, ErrorCode::bad_file, {"'data_offsets' is [0,8]", "within the 4 bytes"}},
    {"huge_offset", one("\"F32\"", "[1]", "[18446744073709551612,18446744073709551615]"), 4, ErrorCode::bad_file, {"within the 4 bytes"}},
    {"size", one("\"F32\"", "[1]", "[0,8]"), 8, ErrorCode::bad_file, {"a range of 4 bytes", "F32"}},
    {"gap",
     R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"I8","shape":[1],"data_offsets":[2,3]}})",
     3,
     ErrorCode::bad_file,
     {"bytes 1 to 2", "no tensor"}},
    {"overlap",
     R"({"a":{"dtype":"I8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"I8","shape":[2],"data_offsets":[1,3]}})",
     3,
     ErrorCode::bad_file,
     {"tensor 'b'", "overlaps tensor 'a'"}},
    {"same_place",
     R"({"a":{"dtype":"I8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"I8","shape":[2],"data_offsets":[0,2]}})",
     2,
     ErrorCode::bad_file,
     {"overlaps"}},
    {"tail_of_data", one("\"F32\"", "[1]", "[0,4]"), 5, ErrorCode::bad_file, {"end at byte 4", "the file at 5"}},
    {"misaligned",
     R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})",
     5,
     ErrorCode::unsupported,
     {"tensor 'b'", "multiple of 4"}},
    {"twice",
     R"({"lm_head.weight":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},"output.weight":{"dtype":"I8","shape":[1],"data_offsets":[1,2]}})",
     2,
     ErrorCode::bad_file,
     {"'output.weight'", "twice"}},
};
INSTANTIATE_TEST_SUITE_P(All, SafetensorsBad, testing::ValuesIn(kBad), [](const auto& info) { return std::string(info.param.name); });

TEST(Safetensors, HeaderSizes) {
  for (std::size_t n = 0; n < 8; ++n) {
    const auto m = parse(std::vector<std::byte>(n));
    ASSERT_FALSE(m);
    EXPECT_NE(m.error().what.find("8 bytes"), std::string::npos) << m.error().what;
  }
  for (const std::uint64_t size : {std::uint64_t{100}, std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
    auto bytes = file_of(kSound, 0);
    bytes.resize(50);
    std::memcpy(bytes.data(), &size, 8);
    const auto m = parse(bytes);
    ASSERT_FALSE(m);
    EXPECT_EQ(m.error().what, "t.safetensors: byte 0: a header of " + std::to_string(size) + " bytes, but only 42 bytes follow");
  }
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const auto whole = file_of(kSound, 24);
  for (std::size_t n = 0; n < whole.size(); ++n) {
    const std::vector<std::byte> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n));
    EXPECT_FALSE(parse(cut)) << "cut after " << n << " bytes";
  }
}

class Folder : public testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::path(testing::TempDir()) / "safetensors_test";
    std::filesystem::remove_all(path_);
    std::filesystem::create_directory(path_);
  }
  void TearDown() override { std::filesystem::remove_all(path_); }
  void write(const std::string& name, const std::vector<std::byte>& bytes) {
    std::ofstream(path_ / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  void write(const std::string& name, const std::string& text) { std::ofstream(path_ / name, std::ios::binary) << text; }
  Error refused() {
    const auto m = SafetensorsModel::open(path_.string());
    EXPECT_FALSE(m);
    return m ? Error{} : m.error();
  }
  std::filesystem::path path_;
};

TEST_F(Folder, WithoutWeightsIsNoModel) {
  EXPECT_EQ(refused().code, ErrorCode::not_found);
  EXPECT_NE(refused().what.find("model.safetensors.index.json"), std::string::npos);
  EXPECT_EQ(SafetensorsModel::open((path_ / "none").string()).error().code, ErrorCode::io_failed);
}

TEST_F(Folder, ShardsAreWhatTheIndexSays) {
  const std::string index = "model.safetensors.index.json";
  write("a.safetensors", file_of(one("\"F32\"", "[1]", "[0,4]"), 4));
  write("b.safetensors", file_of(R"({"lm_head.weight":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4));
  write(index, std::string(R"({"weight_map":{"a.b":"a.safetensors","lm_head.weight":"b.safetensors"}})"));
  const auto m = SafetensorsModel::open(path_.string());
  ASSERT_TRUE(m) << m.error().what;
  EXPECT_EQ(m.value().files(), 2u);
  EXPECT_NE(m.value().tensor("output.weight"), nullptr);
  EXPECT_NE(m.value().tensor("a.b"), nullptr);

  const auto expect = [&](const std::string& text, const char* word) {
    write(index, text);
    EXPECT_NE(refused().what.find(word), std::string::npos) << refused().what;
  };
  expect(R"({"weight_map":{"a.b":"a.safetensors","lm_head.weight":"c.safetensors"}})", "c.safetensors");
  expect(R"({"weight_map":{"a.b":"a.safetensors","lm_head.weight":"a.safetensors"}})", "'output.weight' is expected in a.safetensors");
  expect(R"({"weight_map":{"a.b":"../a.safetensors"}})", "same folder");
  expect(R"({"weight_map":{"a.b":"/etc/passwd"}})", "same folder");
  expect(R"({"weight_map":{"a.b":7}})", "field 'a.b' is 7");
  expect(R"({"weight_map":{}})", "names no tensor");
  expect(R"({"weight_map":[]})", "field 'weight_map' is []");
  expect(R"({})", "field 'weight_map' is missing");
  expect("", "JSON is expected");
}

TEST(Safetensors, ReadsFoldersMadeByOtherSoftware) {
  for (const char* folder : {"tiny-llama", "tiny-llama3", "tiny-mistral", "tiny-mistral-swa", "tiny-qwen2", "tiny-qwen3"}) {
    const std::string path = std::string("tests/golden/") + folder;
    const auto m = SafetensorsModel::open(path);
    ASSERT_TRUE(m) << m.error().what;
    EXPECT_EQ(m.value().files(), path.ends_with("tiny-llama") ? 2u : 1u);
    std::ifstream in(path + "/config.json");
    const std::string config((std::istreambuf_iterator<char>(in)), {});
    const auto c = model_config_from_json(config, "", path);
    ASSERT_TRUE(c) << c.error().what;
    const auto fits = check_tensors(m.value(), c.value());
    EXPECT_TRUE(fits) << fits.error().what;
    EXPECT_EQ(m.value().tensor("token_embd.weight")->type, TensorType::BF16);

    ModelConfig other = c.value();
    other.layers = 3;
    EXPECT_NE(check_tensors(m.value(), other).error().what.find("blk.2.attn_norm.weight is missing"), std::string::npos);
    other = c.value();
    other.ffn = 161;
    const std::string what = check_tensors(m.value(), other).error().what;
    EXPECT_EQ(what.find(path + ": tensor blk.0.ffn_gate.weight has the shape ["), 0u) << what;
  }
}

}  // namespace
}  // namespace troupe::device
