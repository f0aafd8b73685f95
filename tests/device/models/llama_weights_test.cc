// Which tensors a model's weights are, and what is refused with which words.
#include "device/models/weights.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <stdexcept>

#include "device/models/gguf.h"
#include "device/models/llama_forward.h"
#include "device/models/model_config.h"
#include "tests/device/models/gguf_builder.h"

namespace troupe::device {
namespace {

// A sound one-layer model; tests bend it before it is written.
struct Parts {
  std::string architecture = "llama";
  std::map<std::string, std::uint32_t> uints{{".block_count", 1},          {".embedding_length", 64}, {".feed_forward_length", 96},
                                             {".attention.head_count", 4}, {".context_length", 128},  {".attention.head_count_kv", 2}};
  std::map<std::string, float> floats{{".attention.layer_norm_rms_epsilon", 1e-5f}};
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
  Result<ModelConfig> config = Error{ErrorCode::internal, ""};
  Result<LlamaWeights> weights = Error{ErrorCode::internal, ""};
  Error error() const { return !config ? config.error() : !weights ? weights.error() : Error{}; }
};

Read read(const Parts& p) {
  GgufBuilder b;
  b.string("general.architecture", p.architecture);
  for (const auto& [k, v] : p.uints) b.key(p.architecture + k, kU32, v);
  for (const auto& [k, v] : p.floats) b.key(p.architecture + k, kF32, v);
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
  out.config = model_config_from_gguf(file.value());
  if (out.config) out.weights = load_llama_weights(file.value(), out.config.value());
  return out;
}

TEST(LlamaWeights, ATiedModelReadsItsEmbeddingAgain) {
  const Read r = read({});
  ASSERT_TRUE(r.weights) << r.error().what;
  const LlamaWeights& w = r.weights.value();
  EXPECT_EQ(w.output.data, w.embedding.data);
  ASSERT_EQ(w.layers.size(), 1u);
  EXPECT_EQ(w.layers[0].down.cols, 96u);
  EXPECT_EQ(w.layers[0].k.rows, 32u);
  EXPECT_EQ(w.layers[0].q_bias, nullptr);
  EXPECT_EQ(w.layers[0].q_norm, nullptr);
  EXPECT_TRUE(w.owned.empty());
}

TEST(LlamaWeights, AnUntiedOutputIsUsed) {
  Parts p;
  p.tensors["output.weight"] = {{64, 10}, TensorType::Q8_0};
  const Read r = read(p);
  ASSERT_TRUE(r.weights) << r.error().what;
  EXPECT_NE(r.weights.value().output.data, r.weights.value().embedding.data);
  EXPECT_EQ(r.weights.value().output.format, kernels::Format::q8_0);
}

TEST(LlamaWeights, ReadsEveryFormatThatTheKernelsHave) {
  const std::pair<TensorType, kernels::Format> formats[] = {
      {TensorType::F32, kernels::Format::f32},   {TensorType::F16, kernels::Format::f16},   {TensorType::BF16, kernels::Format::bf16},
      {TensorType::Q8_0, kernels::Format::q8_0}, {TensorType::Q4_0, kernels::Format::q4_0}, {TensorType::Q4_1, kernels::Format::q4_1}};
  for (const auto& [stored, read_as] : formats) {
    Parts p;
    p.tensors["blk.0.ffn_up.weight"].type = stored;
    const Read r = read(p);
    ASSERT_TRUE(r.weights) << r.error().what;
    EXPECT_EQ(r.weights.value().layers[0].up.format, read_as);
  }
}

TEST(LlamaWeights, Qwen2HasBiasesAndQwen3NormsOfHeads) {
  Parts p;
  p.architecture = "qwen2";
  p.tensors["blk.0.attn_q.bias"] = {{64}};
  p.tensors["blk.0.attn_k.bias"] = {{32}, TensorType::F16};
  p.tensors["blk.0.attn_v.bias"] = {{32}, TensorType::BF16};
  const Read two = read(p);
  ASSERT_TRUE(two.weights) << two.error().what;
  const LlamaLayer& l = two.weights.value().layers[0];
  EXPECT_NE(l.q_bias, nullptr);
  EXPECT_NE(l.k_bias, nullptr);
  EXPECT_NE(l.v_bias, nullptr);
  EXPECT_EQ(two.weights.value().owned.size(), 2u);  // those that are not stored in F32
  Parts q;
  q.architecture = "qwen3";
  q.tensors["blk.0.attn_q_norm.weight"] = q.tensors["blk.0.attn_k_norm.weight"] = {{16}};
  const Read three = read(q);
  ASSERT_TRUE(three.weights) << three.error().what;
  EXPECT_NE(three.weights.value().layers[0].q_norm, nullptr);
  EXPECT_NE(three.weights.value().layers[0].k_norm, nullptr);
}

TEST(Vector, IsConvertedToF32) {
  for (const bool brain : {false, true}) {
    const std::uint16_t stored[] = {static_cast<std::uint16_t>(brain ? 0x3fc0 : 0x3e00),
                                    static_cast<std::uint16_t>(brain ? 0xc000 : 0xc000)};
    struct Source final : TensorSource {
      StoredTensor t;
      std::string p = "here";
      const StoredTensor* tensor(std::string_view name) const override { return name == t.name ? &t : nullptr; }
      const std::string& path() const override { return p; }
    } source;
    source.t = {"v", brain ? TensorType::BF16 : TensorType::F16, {2}, reinterpret_cast<const std::byte*>(stored), sizeof stored};
    OwnedFloats owned;
    const auto v = vector(source, "v", 2, owned);
    ASSERT_TRUE(v) << v.error().what;
    EXPECT_EQ(v.value()[0], 1.5f);
    EXPECT_EQ(v.value()[1], -2.0f);
    EXPECT_FALSE(vector(source, "v", 3, owned));
  }
}

struct Bad {
  const char* name;
  std::function<void(Parts&)> bend;
  ErrorCode code;
  std::vector<const char*> words;
};

class LlamaWeightsBad : public testing::TestWithParam<Bad> {};

TEST_P(LlamaWeightsBad, IsRefusedWithItsPlaceAndTheExpectation) {
  Parts p;
  GetParam().bend(p);
  const Read r = read(p);
  const Error e = r.error();
  EXPECT_EQ(e.code, GetParam().code) << e.what;
  for (const char* w : GetParam().words) EXPECT_NE(e.what.find(w), std::string::npos) << "\"" << w << "\" in: " << e.what;
}

const Bad kBad[] = {
    {"layers", [](Parts& p) { p.uints[".block_count"] = 1000000; }, ErrorCode::bad_file, {"blk.1.attn_norm.weight", "missing"}},
    {"no_norm", [](Parts& p) { p.tensors.erase("output_norm.weight"); }, ErrorCode::bad_file, {"output_norm.weight", "missing", "[64]"}},
    {"shape",
     [](Parts& p) {
       p.tensors["blk.0.attn_k.weight"] = {{64, 64}, TensorType::F32};
     },
     ErrorCode::bad_file,
     {"blk.0.attn_k.weight", "[64, 64]", "[64, 32]"}},
    {"transposed",
     [](Parts& p) {
       p.tensors["blk.0.ffn_down.weight"] = {{64, 96}, TensorType::F32};
     },
     ErrorCode::bad_file,
     {"blk.0.ffn_down.weight", "[96, 64]"}},
    {"format",
     [](Parts& p) { p.tensors["blk.0.ffn_up.weight"].type = TensorType::Q5_0; },
     ErrorCode::unsupported,
     {"blk.0.ffn_up.weight", "Q5_0", "Q6_K"}},
    {"norm_type",
     [](Parts& p) { p.tensors["blk.0.ffn_norm.weight"].type = TensorType::Q8_0; },
     ErrorCode::bad_file,
     {"blk.0.ffn_norm.weight", "Q8_0", "F32"}},
    {"bias_shape",
     [](Parts& p) {
       p.architecture = "qwen2";
       p.tensors["blk.0.attn_q.bias"] = p.tensors["blk.0.attn_k.bias"] = p.tensors["blk.0.attn_v.bias"] = {{64}, TensorType::F32};
     },
     ErrorCode::bad_file,
     {"blk.0.attn_k.bias", "[64]", "[32]"}},
    {"columns",
     [](Parts& p) {
       p.uints[".feed_forward_length"] = 100;
       p.tensors["blk.0.ffn_gate.weight"] = p.tensors["blk.0.ffn_up.weight"] = {{64, 100}, TensorType::F32};
       p.tensors["blk.0.ffn_down.weight"] = {{100, 64}, TensorType::F32};
     },
     ErrorCode::unsupported,
     {"blk.0.ffn_down.weight", "100", "multiple of 32"}},
};

INSTANTIATE_TEST_SUITE_P(All, LlamaWeightsBad, testing::ValuesIn(kBad), [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace troupe::device
