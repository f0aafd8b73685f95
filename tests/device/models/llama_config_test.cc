// What is read from a file's metadata and tensors, and what is refused with which words.
#include "device/models/llama_config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "device/models/llama_forward.h"
#include "device/models/weights.h"
#include "tests/device/models/gguf_builder.h"

namespace troupe::device {
namespace {

// A sound one-layer model; tests bend it before it is written.
struct Parts {
  std::string architecture = "llama";
  std::map<std::string, std::uint32_t> uints{{"llama.block_count", 1},          {"llama.embedding_length", 64},
                                             {"llama.feed_forward_length", 96}, {"llama.attention.head_count", 4},
                                             {"llama.context_length", 128},     {"llama.attention.head_count_kv", 2}};
  std::map<std::string, float> floats{{"llama.attention.layer_norm_rms_epsilon", 1e-5f}};
  std::map<std::string, std::string> strings;
  struct Shape {
    std::vector<std::uint64_t> dims;
    TensorType type = TensorType::F32;
  };
  std::map<std::string, Shape> tensors{
      {"token_embd.weight", {{64, 10}}},        {"output_norm.weight", {{64}}},        {"blk.0.attn_norm.weight", {{64}}},
      {"blk.0.attn_q.weight", {{64, 64}}},      {"blk.0.attn_k.weight", {{64, 32}}},   {"blk.0.attn_v.weight", {{64, 32}}},
      {"blk.0.attn_output.weight", {{64, 64}}}, {"blk.0.ffn_norm.weight", {{64}}},     {"blk.0.ffn_gate.weight", {{64, 96}}},
      {"blk.0.ffn_up.weight", {{64, 96}}},      {"blk.0.ffn_down.weight", {{96, 64}}},
  };
};

struct Read {
  Bytes bytes;
  Result<LlamaConfig> config = Error{ErrorCode::internal, ""};
  Result<LlamaWeights> weights = Error{ErrorCode::internal, ""};
  Error error() const { return !config ? config.error() : !weights ? weights.error() : Error{}; }
};

Read read(const Parts& p) {
  GgufBuilder b;
  b.string("general.architecture", p.architecture);
  for (const auto& [k, v] : p.uints) b.key(k, kU32, v);
  for (const auto& [k, v] : p.floats) b.key(k, kF32, v);
  for (const auto& [k, v] : p.strings) b.string(k, v);
  std::uint64_t offset = 0;
  for (const auto& [name, t] : p.tensors) {
    b.tensor(name, t.dims, static_cast<std::uint32_t>(t.type), offset);
    std::uint64_t n = 1;
    for (auto d : t.dims) n *= d;
    const TensorLayout l = *layout(t.type);
    offset = (offset + n / l.block * l.block_bytes + 31) / 32 * 32;
  }
  Read out;
  out.bytes = b.build(offset);
  auto file = GgufFile::parse(out.bytes.span(), "test.gguf");
  if (!file) throw std::runtime_error(file.error().what);
  out.config = read_llama_config(file.value());
  if (out.config) out.weights = load_llama_weights(file.value(), out.config.value());
  return out;
}

TEST(LlamaConfig, ReadsASoundFile) {
  Parts p;
  p.uints["tokenizer.ggml.eos_token_id"] = 2;
  p.uints["tokenizer.ggml.eot_token_id"] = 3;
  p.strings["general.name"] = "small";
  const Read r = read(p);
  ASSERT_TRUE(r.weights) << r.error().what;
  const LlamaConfig& c = r.config.value();
  EXPECT_EQ(c.name, "small");
  EXPECT_EQ(c.vocab, 10u);
  EXPECT_EQ(c.head_dim, 16u);
  EXPECT_EQ(c.rotated, 16u);
  EXPECT_EQ(c.kv_width(), 32u);
  EXPECT_EQ(c.eos_ids, (std::vector<Token>{2, 3}));
  ASSERT_EQ(c.inv_freq.size(), 8u);
  EXPECT_DOUBLE_EQ(c.inv_freq[0], 1.0);
  EXPECT_DOUBLE_EQ(c.inv_freq[4], std::pow(10000.0, -0.5));
  const LlamaWeights& w = r.weights.value();
  EXPECT_EQ(w.output.data, w.embedding.data);  // tied
  EXPECT_EQ(w.layers.size(), 1u);
  EXPECT_EQ(w.layers[0].down.cols, 96u);
}

TEST(LlamaConfig, AnUntiedOutputIsUsed) {
  Parts p;
  p.tensors["output.weight"] = {{64, 10}, TensorType::Q8_0};
  const Read r = read(p);
  ASSERT_TRUE(r.weights) << r.error().what;
  EXPECT_NE(r.weights.value().output.data, r.weights.value().embedding.data);
  EXPECT_EQ(r.weights.value().output.format, kernels::Format::q8_0);
}

TEST(LlamaConfig, OptionalKeysHaveTheirMeaning) {
  Parts p;
  p.uints.erase("llama.attention.head_count_kv");
  p.tensors["blk.0.attn_k.weight"] = p.tensors["blk.0.attn_v.weight"] = {{64, 64}};
  p.uints["llama.rope.dimension_count"] = 8;
  p.floats["llama.rope.freq_base"] = 500.0f;
  p.strings["llama.rope.scaling.type"] = "linear";
  p.floats["llama.rope.scaling.factor"] = 4.0f;
  p.tensors["rope_freqs.weight"] = {{4}};
  const Read r = read(p);
  ASSERT_TRUE(r.weights) << r.error().what;
  EXPECT_EQ(r.config.value().kv_heads, 4u);
  ASSERT_EQ(r.config.value().inv_freq.size(), 4u);
}

struct Bad {
  const char* name;
  std::function<void(Parts&)> bend;
  ErrorCode code;
  std::vector<const char*> words;
};

class LlamaConfigBad : public testing::TestWithParam<Bad> {};

TEST_P(LlamaConfigBad, IsRefusedWithItsPlaceAndTheExpectation) {
  Parts p;
  GetParam().bend(p);
  const Read r = read(p);
  const Error e = r.error();
  EXPECT_EQ(e.code, GetParam().code) << e.what;
  for (const char* w : GetParam().words) EXPECT_NE(e.what.find(w), std::string::npos) << "\"" << w << "\" in: " << e.what;
}

const Bad kBad[] = {
    {"architecture", [](Parts& p) { p.architecture = "qwen9"; }, ErrorCode::unsupported, {"qwen9", "llama"}},
    {"experts", [](Parts& p) { p.uints["llama.expert_count"] = 8; }, ErrorCode::unsupported, {"experts"}},
    {"no_layers_key", [](Parts& p) { p.uints.erase("llama.block_count"); }, ErrorCode::not_found, {"llama.block_count"}},
    {"zero_heads", [](Parts& p) { p.uints["llama.attention.head_count"] = 0; }, ErrorCode::bad_file, {"llama.attention.head_count", "0"}},
    {"absurd", [](Parts& p) { p.uints["llama.embedding_length"] = 0xFFFFFFFF; }, ErrorCode::bad_file, {"llama.embedding_length"}},
    {"too_many_layers",
     [](Parts& p) { p.uints["llama.block_count"] = 1000000; },
     ErrorCode::bad_file,
     {"blk.1.attn_norm.weight", "missing"}},
    {"heads_kv", [](Parts& p) { p.uints["llama.attention.head_count_kv"] = 3; }, ErrorCode::bad_file, {"4 query heads", "3 KV heads"}},
    {"rope_odd", [](Parts& p) { p.uints["llama.rope.dimension_count"] = 7; }, ErrorCode::bad_file, {"llama.rope.dimension_count", "7"}},
    {"rope_more", [](Parts& p) { p.uints["llama.rope.dimension_count"] = 18; }, ErrorCode::bad_file, {"llama.rope.dimension_count", "18"}},
    {"rope_base", [](Parts& p) { p.floats["llama.rope.freq_base"] = 0.0f; }, ErrorCode::bad_file, {"llama.rope.freq_base"}},
    {"rope_yarn", [](Parts& p) { p.strings["llama.rope.scaling.type"] = "yarn"; }, ErrorCode::unsupported, {"yarn"}},
    {"eps", [](Parts& p) { p.floats["llama.attention.layer_norm_rms_epsilon"] = std::nanf(""); }, ErrorCode::bad_file, {"epsilon"}},
    {"value_length", [](Parts& p) { p.uints["llama.attention.value_length"] = 8; }, ErrorCode::unsupported, {"16", "8"}},
    {"width",
     [](Parts& p) { p.uints["llama.feed_forward_length"] = 100; },
     ErrorCode::unsupported,
     {"feed_forward_length", "multiple of 32"}},
    {"vocab", [](Parts& p) { p.uints["llama.vocab_size"] = 11; }, ErrorCode::bad_file, {"11", "10"}},
    {"eos", [](Parts& p) { p.uints["tokenizer.ggml.eos_token_id"] = 10; }, ErrorCode::bad_file, {"eos_token_id", "10"}},
    {"no_embedding", [](Parts& p) { p.tensors.erase("token_embd.weight"); }, ErrorCode::bad_file, {"token_embd.weight"}},
    {"no_norm", [](Parts& p) { p.tensors.erase("output_norm.weight"); }, ErrorCode::bad_file, {"output_norm.weight", "missing", "[64]"}},
    {"shape",
     [](Parts& p) {
       p.tensors["blk.0.attn_k.weight"] = {{64, 64}};
     },
     ErrorCode::bad_file,
     {"blk.0.attn_k.weight", "[64, 64]", "[64, 32]"}},
    {"transposed",
     [](Parts& p) {
       p.tensors["blk.0.ffn_down.weight"] = {{64, 96}};
     },
     ErrorCode::bad_file,
     {"blk.0.ffn_down.weight", "[96, 64]"}},
    {"format",
     [](Parts& p) { p.tensors["blk.0.ffn_up.weight"].type = TensorType::Q5_0; },
     ErrorCode::unsupported,
     {"blk.0.ffn_up.weight", "Q5_0"}},
    {"norm_type",
     [](Parts& p) { p.tensors["blk.0.ffn_norm.weight"].type = TensorType::F16; },
     ErrorCode::bad_file,
     {"blk.0.ffn_norm.weight", "F16", "F32"}},
};

INSTANTIATE_TEST_SUITE_P(All, LlamaConfigBad, testing::ValuesIn(kBad), [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace troupe::device
