// What GGUF metadata and config.json say about a model, and what is refused with which words.
#include "device/models/model_config.h"

#include <gtest/gtest.h>
#include <boost/json.hpp>

#include <cmath>
#include <fstream>
#include <functional>

#include "tests/device/models/gguf_builder.h"

namespace troupe::device {
namespace {

namespace json = boost::json;

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

ModelConfig from_folder(const std::string& folder) {
  const std::string path = "tests/golden/" + folder;
  auto c = model_config_from_json(read(path + "/config.json"), read(path + "/generation_config.json"), path);
  EXPECT_TRUE(c) << c.error().what;
  return c ? c.value() : ModelConfig{};
}

ModelConfig from_gguf(const std::string& path) {
  const auto file = GgufFile::open("tests/golden/" + path);
  EXPECT_TRUE(file) << file.error().what;
  auto c = model_config_from_gguf(file.value());
  EXPECT_TRUE(c) << c.error().what;
  if (!c) return {};
  const auto fits = check_tensors(file.value(), c.value());
  EXPECT_TRUE(fits) << fits.error().what;
  return c.value();
}

void expect_same(const ModelConfig& a, const ModelConfig& b) {
  EXPECT_EQ(a.vocab, b.vocab);
  EXPECT_EQ(a.layers, b.layers);
  EXPECT_EQ(a.width, b.width);
  EXPECT_EQ(a.ffn, b.ffn);
  EXPECT_EQ(a.heads, b.heads);
  EXPECT_EQ(a.kv_heads, b.kv_heads);
  EXPECT_EQ(a.head_dim, b.head_dim);
  EXPECT_EQ(a.context, b.context);
  EXPECT_EQ(a.rotated, b.rotated);
  EXPECT_EQ(a.eps, b.eps);
  EXPECT_EQ(a.tied, b.tied);
  EXPECT_EQ(a.qkv_bias, b.qkv_bias);
  EXPECT_EQ(a.qk_norm, b.qk_norm);
  EXPECT_EQ(a.sliding_window, b.sliding_window);
  EXPECT_EQ(a.eos_ids, b.eos_ids);
  EXPECT_EQ(a.bos_id, b.bos_id);
  ASSERT_EQ(a.inv_freq.size(), b.inv_freq.size());
  for (std::size_t i = 0; i < a.inv_freq.size(); ++i) EXPECT_NEAR(a.inv_freq[i], b.inv_freq[i], 1e-6 * b.inv_freq[i]) << i;
}

TEST(ModelConfig, BothFormatsSayTheSame) {
  for (const auto& [folder, file] : {std::pair{"tiny-llama", "tiny-llama.F32.gguf"},
                                     {"tiny-llama3", "tiny-llama3.Q8_0.gguf"},
                                     {"tiny-qwen2", "tiny-qwen2.Q8_0.gguf"},
                                     {"tiny-qwen3", "tiny-qwen3.BF16.gguf"}}) {
    SCOPED_TRACE(folder);
    const ModelConfig j = from_folder(folder), g = from_gguf(std::string(folder) + "/" + file);
    EXPECT_EQ(j.architecture, g.architecture);
    EXPECT_EQ(j.rope_pairs, RopePairs::halves);
    EXPECT_EQ(g.rope_pairs, g.architecture == Architecture::llama ? RopePairs::interleaved : RopePairs::halves);
    expect_same(j, g);
  }
}

TEST(ModelConfig, Families) {
  const ModelConfig llama3 = from_folder("tiny-llama3");
  EXPECT_FALSE(llama3.tied);
  EXPECT_EQ(llama3.rope_scaling.kind, RopeScaling::Kind::llama3);
  EXPECT_EQ(llama3.eos_ids, std::vector<Token>{4});
  const ModelConfig qwen2 = from_folder("tiny-qwen2");
  EXPECT_EQ(qwen2.architecture, Architecture::qwen2);
  EXPECT_EQ(qwen2.head_dim, 16u);
  EXPECT_TRUE(qwen2.qkv_bias);
  EXPECT_FALSE(qwen2.qk_norm);
  const ModelConfig qwen3 = from_folder("tiny-qwen3");
  EXPECT_EQ(qwen3.head_dim, 32u);
  EXPECT_EQ(qwen3.q_width(), 128u);
  EXPECT_TRUE(qwen3.qk_norm);
  const ModelConfig mistral = from_folder("tiny-mistral");
  EXPECT_EQ(mistral.architecture, Architecture::mistral);
  EXPECT_EQ(mistral.kv_heads, 1u);
  EXPECT_EQ(mistral.sliding_window, 0u);
  EXPECT_EQ(from_folder("tiny-mistral-swa").sliding_window, 40u);
}

TEST(ModelConfig, TheTextPartOfQwen35) {
  const ModelConfig c = from_folder("tiny-qwen35");
  EXPECT_EQ(c.architecture, Architecture::qwen3_5);
  EXPECT_EQ(c.recurrent, (std::vector<bool>{true, false, true, false}));
  EXPECT_EQ(c.delta.channels(), 160u);
  EXPECT_EQ(c.delta.value_width(), 96u);
  EXPECT_EQ(c.delta.taps, 4u);
  EXPECT_TRUE(c.gated_attention && c.norms_less_one && c.qk_norm && c.tied);
  EXPECT_EQ(c.rotated, 8u);
  EXPECT_EQ(c.q_rows(), 256u);
  // Inside a whole with a vision part, and with what is left to its defaults.
  const std::string text = read("tests/golden/tiny-qwen35/config.json");
  const std::string whole =
      R"({"model_type": "qwen3_5", "architectures": ["Qwen3_5ForConditionalGeneration"], "vision_config": {"depth": 2},
    "tie_word_embeddings": false, "text_config": )" +
      text + "}";
  const auto nested = model_config_from_json(whole, "", "folder");
  ASSERT_TRUE(nested) << nested.error().what;
  EXPECT_EQ(nested.value().recurrent, c.recurrent);
  EXPECT_EQ(nested.value().inv_freq, c.inv_freq);
  EXPECT_FALSE(nested.value().tied) << "the whole's word";
  const auto change = [&](std::string_view from, std::string_view to) {
    std::string changed = text;
    const auto at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    changed.replace(at, from.size(), to);
    return model_config_from_json(changed, "", "folder");
  };
  const auto code = [&](std::string_view from, std::string_view to) {
    const auto changed = change(from, to);
    return changed ? ErrorCode::none : changed.error().code;
  };
  const auto by_interval = change(R"("layer_types")", R"("full_attention_interval": 2, "other")");
  ASSERT_TRUE(by_interval) << by_interval.error().what;
  EXPECT_EQ(by_interval.value().recurrent, c.recurrent);
  EXPECT_EQ(code(R"("linear_num_key_heads": 2)", R"("linear_num_key_heads": 3)"), ErrorCode::bad_file);
  EXPECT_EQ(code(R"("linear_conv_kernel_dim": 4)", R"("linear_conv_kernel_dim": 1)"), ErrorCode::bad_file);
  EXPECT_EQ(code(R"("linear_attention",)", R"("sliding_attention",)"), ErrorCode::bad_file);
  EXPECT_EQ(code(R"("hidden_act")", R"("attn_output_gate": false, "hidden_act")"), ErrorCode::unsupported);
  EXPECT_EQ(code(R"("layer_types")", R"("full_attention_interval": 99, "other")"), ErrorCode::unsupported) << "no layer has attention";
}

// Numbers of transformers 5.24, _compute_llama3_parameters, for theta 500000, 16 elements and the scaling of tiny-llama3.
TEST(ModelConfig, Llama3FrequenciesSlowTheLongWavesOnly) {
  const RopeScaling s{RopeScaling::Kind::llama3, 8.0, 1.0, 4.0, 64.0};
  const auto plain = rope_frequencies(500000.0, 16, {}), f = rope_frequencies(500000.0, 16, s);
  ASSERT_EQ(f.size(), 8u);
  EXPECT_DOUBLE_EQ(f[0], 1.0);  // wavelength 6.3: below 64 / 4
  // Wavelength 32.4: 64 / 32.4 = 1.975 of the way from 1 to 4.
  const double kept = (64.0 * plain[1] / (2.0 * 3.14159265358979323846) - 1.0) / 3.0;
  EXPECT_GT(kept, 0.0);
  EXPECT_LT(kept, 1.0);
  EXPECT_NEAR(f[1], plain[1] * (kept + (1.0 - kept) / 8.0), 1e-12);
  for (std::size_t i = 2; i < 8; ++i) EXPECT_DOUBLE_EQ(f[i], plain[i] / 8.0) << i;  // wavelengths above 64
  for (const double x : rope_frequencies(10000.0, 8, {RopeScaling::Kind::linear, 4.0})) EXPECT_LE(x, 0.25);
}

json::object sound() {
  return json::parse(
             R"({"model_type":"llama","architectures":["LlamaForCausalLM"],"hidden_size":64,"intermediate_size":96,"num_attention_heads":4,
    "num_key_value_heads":2,"num_hidden_layers":3,"vocab_size":100,"max_position_embeddings":256,"rms_norm_eps":1e-6,"hidden_act":"silu",
    "eos_token_id":[7,3,7],"bos_token_id":1,"rope_theta":1000.0,"rope_scaling":null,"torch_dtype":"bfloat16"})")
      .as_object();
}

Result<ModelConfig> parse(const json::object& o, const std::string& generation = "") {
  return model_config_from_json(json::serialize(o), generation, "dir");
}

TEST(ModelConfig, OldAndNewRope) {
  json::object o = sound();
  const auto old = parse(o);
  ASSERT_TRUE(old) << old.error().what;
  EXPECT_EQ(old.value().rope_theta, 1000.0);
  EXPECT_EQ(old.value().eos_ids, (std::vector<Token>{3, 7}));
  EXPECT_EQ(old.value().bos_id, Token{1});
  EXPECT_EQ(old.value().head_dim, 16u);
  for (const char* kind : {"type", "rope_type"}) {
    o["rope_scaling"] = {{kind, "linear"}, {"factor", 4.0}};
    EXPECT_DOUBLE_EQ(parse(o).value().inv_freq[0], 0.25);
  }
  o["rope_scaling"] = {{"rope_type", "llama3"},
                       {"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 64}};
  const auto scaled_old = parse(o).value().inv_freq;
  o["rope_parameters"] = o["rope_scaling"];
  o["rope_parameters"].as_object()["rope_theta"] = 1000.0;
  o.erase("rope_scaling");
  o.erase("rope_theta");
  EXPECT_EQ(parse(o).value().inv_freq, scaled_old);
  o["rope_parameters"] = {{"rope_theta", 500.0}, {"rope_type", "default"}, {"partial_rotary_factor", 0.5}};
  EXPECT_EQ(parse(o).value().rotated, 8u);
  EXPECT_EQ(parse(o).value().rope_theta, 500.0);
}

TEST(ModelConfig, EndIdsOfBothFilesCount) {
  EXPECT_EQ(parse(sound(), R"({"eos_token_id":[3,9]})").value().eos_ids, (std::vector<Token>{3, 7, 9}));
  const auto bad = parse(sound(), R"({"eos_token_id":100})");
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().what, "dir/generation_config.json: field 'eos_token_id' is 100; an id below 100, or an array of them, is expected");
}

TEST(ModelConfig, WindowsOfQwenAreOnlyUsedWhereItSaysSo) {
  json::object o = sound();
  o["model_type"] = "qwen2";
  o["architectures"] = {"Qwen2ForCausalLM"};
  o["sliding_window"] = 32;
  EXPECT_EQ(parse(o).value().sliding_window, 0u);
  o["use_sliding_window"] = true;
  o["max_window_layers"] = 3;
  EXPECT_EQ(parse(o).value().sliding_window, 0u);
  o["max_window_layers"] = 0;
  EXPECT_EQ(parse(o).value().sliding_window, 32u);
  o["max_window_layers"] = 2;
  EXPECT_EQ(parse(o).error().code, ErrorCode::unsupported);
  o["layer_types"] = {"sliding_attention", "sliding_attention", "sliding_attention"};
  EXPECT_EQ(parse(o).value().sliding_window, 32u);
}

struct Bad {
  const char* name;
  std::function<void(json::object&)> bend;
  ErrorCode code;
  std::vector<const char*> words;
};
class ConfigJsonBad : public testing::TestWithParam<Bad> {};

TEST_P(ConfigJsonBad, IsRefusedWithItsFieldAndTheExpectation) {
  json::object o = sound();
  ASSERT_TRUE(parse(o));
  GetParam().bend(o);
  const auto c = parse(o);
  ASSERT_FALSE(c);
  EXPECT_EQ(c.error().code, GetParam().code) << c.error().what;
  EXPECT_EQ(c.error().what.find("dir/config.json: "), 0u) << c.error().what;
  for (const char* w : GetParam().words) EXPECT_NE(c.error().what.find(w), std::string::npos) << "\"" << w << "\" in: " << c.error().what;
}

Bad missing(const char* name, const char* key) {
  return {name, [key](json::object& o) { o.erase(key); }, ErrorCode::not_found, {key, "missing", "expected"}};
}
const Bad kBad[] = {
    missing("no_type", "model_type"),
    missing("no_layers", "num_hidden_layers"),
    missing("no_width", "hidden_size"),
    missing("no_ffn", "intermediate_size"),
    missing("no_heads", "num_attention_heads"),
    missing("no_vocab", "vocab_size"),
    missing("no_context", "max_position_embeddings"),
    missing("no_eps", "rms_norm_eps"),
    {"architecture", [](json::object& o) { o["model_type"] = "gpt9"; }, ErrorCode::unsupported, {"'model_type'", "gpt9", "qwen3"}},
    {"type_is_number", [](json::object& o) { o["model_type"] = 3; }, ErrorCode::bad_file, {"'model_type' is 3", "a string"}},
    {"classifier",
     [](json::object& o) { o["architectures"] = {"LlamaForSequenceClassification"}; },
     ErrorCode::unsupported,
     {"'architectures'", "LlamaForCausalLM"}},
    {"quantized",
     [](json::object& o) {
       o["quantization_config"] = {{"bits", 4}};
     },
     ErrorCode::unsupported,
     {"quantization_config", "GGUF"}},
    {"activation", [](json::object& o) { o["hidden_act"] = "gelu"; }, ErrorCode::unsupported, {"'hidden_act'", "gelu", "silu"}},
    {"bias", [](json::object& o) { o["attention_bias"] = true; }, ErrorCode::unsupported, {"'attention_bias'"}},
    {"zero_heads",
     [](json::object& o) { o["num_attention_heads"] = 0; },
     ErrorCode::bad_file,
     {"'num_attention_heads' is 0", "1 to 16777216"}},
    {"negative", [](json::object& o) { o["hidden_size"] = -64; }, ErrorCode::bad_file, {"'hidden_size' is -64"}},
    {"fraction", [](json::object& o) { o["hidden_size"] = 64.5; }, ErrorCode::bad_file, {"'hidden_size'"}},
    {"absurd", [](json::object& o) { o["hidden_size"] = std::uint64_t{1} << 40; }, ErrorCode::bad_file, {"'hidden_size' is 1099511627776"}},
    {"string", [](json::object& o) { o["vocab_size"] = "many"; }, ErrorCode::bad_file, {"'vocab_size' is \"many\""}},
    {"kv_heads", [](json::object& o) { o["num_key_value_heads"] = 3; }, ErrorCode::bad_file, {"4 query heads", "3 KV heads"}},
    {"more_heads_than_width",
     [](json::object& o) {
       o["num_attention_heads"] = 128;
       o["num_key_value_heads"] = 128;
     },
     ErrorCode::bad_file,
     {"head size of 0"}},
    {"head_size", [](json::object& o) { o["head_dim"] = 65538; }, ErrorCode::bad_file, {"head size of 65538", "65536"}},
    {"heads_times_size",
     [](json::object& o) {
       o["head_dim"] = 65536;
       o["num_attention_heads"] = 1024;
       o["num_key_value_heads"] = 1;
     },
     ErrorCode::bad_file,
     {"1024 heads of 65536", "16777216"}},
    {"eps", [](json::object& o) { o["rms_norm_eps"] = 2.0; }, ErrorCode::bad_file, {"epsilon is 2"}},
    {"theta", [](json::object& o) { o["rope_theta"] = -1.0; }, ErrorCode::bad_file, {"theta", "-1"}},
    {"part", [](json::object& o) { o["partial_rotary_factor"] = 1.5; }, ErrorCode::bad_file, {"'partial_rotary_factor'"}},
    {"odd_part", [](json::object& o) { o["partial_rotary_factor"] = 0.44; }, ErrorCode::bad_file, {"7 elements", "even"}},
    {"yarn",
     [](json::object& o) {
       o["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 4.0}};
     },
     ErrorCode::unsupported,
     {"'rope_scaling'", "yarn", "llama3"}},
    {"no_kind",
     [](json::object& o) {
       o["rope_scaling"] = {{"factor", 4.0}};
     },
     ErrorCode::not_found,
     {"'rope_type' is missing"}},
    {"no_factor",
     [](json::object& o) {
       o["rope_scaling"] = {{"rope_type", "linear"}};
     },
     ErrorCode::not_found,
     {"'factor' is missing"}},
    {"factor",
     [](json::object& o) {
       o["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 0.5}};
     },
     ErrorCode::bad_file,
     {"factor is 0.5"}},
    {"llama3_order",
     [](json::object& o) {
       o["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", 8},
                            {"low_freq_factor", 4},
                            {"high_freq_factor", 4},
                            {"original_max_position_embeddings", 64}};
     },
     ErrorCode::bad_file,
     {"low < high"}},
    {"eos", [](json::object& o) { o["eos_token_id"] = 100; }, ErrorCode::bad_file, {"'eos_token_id' is 100", "below 100"}},
    {"eos_text", [](json::object& o) { o["eos_token_id"] = {"</s>"}; }, ErrorCode::bad_file, {"'eos_token_id'"}},
    {"bos", [](json::object& o) { o["bos_token_id"] = 100; }, ErrorCode::bad_file, {"'bos_token_id' is 100", "0 to 99"}},
    {"layer_types", [](json::object& o) { o["layer_types"] = {"full_attention"}; }, ErrorCode::bad_file, {"'layer_types'", "one a layer"}},
    {"layer_kind",
     [](json::object& o) {
       o["layer_types"] = {"mamba", "mamba", "mamba"};
     },
     ErrorCode::bad_file,
     {"'layer_types'"}},
};
INSTANTIATE_TEST_SUITE_P(All, ConfigJsonBad, testing::ValuesIn(kBad), [](const auto& info) { return std::string(info.param.name); });

TEST(ModelConfig, WhatIsNoJsonNamesTheByte) {
  for (const char* text : {"", "{", "nonsense", "{}{}", "[1]", "{\"a\":1e999}"}) {
    const auto c = model_config_from_json(text, "", "dir");
    ASSERT_FALSE(c) << text;
    EXPECT_EQ(c.error().what.find("dir/config.json: "), 0u) << c.error().what;
  }
}

// A GGUF file with an embedding and the keys of a sound model; tests bend it.
Result<ModelConfig> gguf(const std::function<void(GgufBuilder&)>& more, const std::string& architecture = "qwen2") {
  GgufBuilder b;
  b.string("general.architecture", architecture);
  const auto key = [&](const char* k) { return architecture + "." + k; };
  b.key<std::uint32_t>(key("block_count"), kU32, 2)
      .key<std::uint32_t>(key("embedding_length"), kU32, 64)
      .key<std::uint32_t>(key("feed_forward_length"), kU32, 96);
  b.key<std::uint32_t>(key("attention.head_count"), kU32, 4).key<std::uint32_t>(key("context_length"), kU32, 128);
  b.key<float>(key("attention.layer_norm_rms_epsilon"), kF32, 1e-5f);
  b.tensor("token_embd.weight", {64, 10}, 0, 0);
  more(b);
  const Bytes bytes = b.build(8192);
  return model_config_from_gguf(GgufFile::parse(bytes.span(), "t.gguf").value());
}

TEST(ModelConfig, GgufOptions) {
  const auto plain = gguf([](GgufBuilder&) {});
  ASSERT_TRUE(plain) << plain.error().what;
  EXPECT_TRUE(plain.value().tied);
  EXPECT_FALSE(plain.value().qkv_bias);
  EXPECT_EQ(plain.value().kv_heads, 4u);
  const auto c = gguf([](GgufBuilder& b) {
    b.key<std::uint32_t>("qwen2.attention.sliding_window", kU32, 33)
        .tensor("blk.0.attn_q.bias", {4}, 0, 2560)
        .tensor("output.weight", {64, 10}, 0, 2592);
  });
  ASSERT_TRUE(c) << c.error().what;
  EXPECT_EQ(c.value().sliding_window, 33u);
  EXPECT_TRUE(c.value().qkv_bias);
  EXPECT_FALSE(c.value().tied);
}

TEST(ModelConfig, GgufIsRefusedWithItsKey) {
  const auto expect = [](const Result<ModelConfig>& c, ErrorCode code, const char* words) {
    ASSERT_FALSE(c);
    EXPECT_EQ(c.error().code, code) << c.error().what;
    EXPECT_NE(c.error().what.find(words), std::string::npos) << c.error().what;
  };
  expect(gguf([](GgufBuilder&) {}, "mamba"), ErrorCode::unsupported, "'mamba'");
  expect(gguf([](GgufBuilder& b) { b.key<std::uint32_t>("qwen2.attention.head_count_kv", kU32, 3); }), ErrorCode::bad_file, "3 KV heads");
  expect(gguf([](GgufBuilder& b) { b.key<std::uint32_t>("qwen2.expert_count", kU32, 3); }), ErrorCode::unsupported, "experts");
  expect(gguf([](GgufBuilder& b) { b.key<std::uint32_t>("qwen2.attention.key_length", kU32, 0); }), ErrorCode::bad_file,
         "'qwen2.attention.key_length' is 0");
  expect(gguf([](GgufBuilder& b) { b.key<std::uint32_t>("qwen2.vocab_size", kU32, 11); }), ErrorCode::bad_file,
         "token_embd.weight has 10 rows");
  expect(gguf([](GgufBuilder& b) { b.string("qwen2.rope.scaling.type", "yarn"); }), ErrorCode::unsupported, "'yarn'");
  expect(gguf([](GgufBuilder& b) { b.key<std::uint32_t>("tokenizer.ggml.eos_token_id", kU32, 10); }), ErrorCode::bad_file, "eos_token_id");
  expect(gguf([](GgufBuilder& b) { b.tensor("rope_freqs.weight", {4}, 0, 2560); }), ErrorCode::bad_file,
         "rope_freqs.weight is F32 [4]; F32 [8]");
}

}  // namespace
}  // namespace troupe::device
