#include "device/models/lora.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

namespace troupe::device {
namespace {

ModelConfig small_model() {
  ModelConfig c;
  c.layers = 2;
  c.width = 32;
  c.ffn = 64;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = 8;
  return c;
}

using Shapes = std::map<std::string, std::vector<std::uint32_t>>;

std::string tensor_name(int layer, const std::string& module, char half) {
  return "base_model.model.model.layers." + std::to_string(layer) + "." + module + ".lora_" + half + ".weight";
}

// q and v of both layers, rank 4.
Shapes sound_shapes() {
  Shapes s;
  for (int layer : {0, 1}) {
    s[tensor_name(layer, "self_attn.q_proj", 'A')] = {4, 32};
    s[tensor_name(layer, "self_attn.q_proj", 'B')] = {32, 4};
    s[tensor_name(layer, "self_attn.v_proj", 'A')] = {4, 32};
    s[tensor_name(layer, "self_attn.v_proj", 'B')] = {16, 4};
  }
  return s;
}

std::vector<std::byte> file_of(const Shapes& shapes, const std::string& dtype = "F32") {
  std::string header = "{";
  std::size_t at = 0;
  for (const auto& [name, shape] : shapes) {
    std::size_t bytes = dtype == "F32" ? 4 : dtype == "I64" ? 8 : 2;
    std::string dims;
    for (const auto d : shape) {
      bytes *= d;
      if (!dims.empty()) dims += ',';
      dims += std::to_string(d);
    }
    if (at != 0) header += ',';
    header += '"' + name + R"(":{"dtype":")" + dtype + R"(","shape":[)" + dims + R"(],"data_offsets":[)" + std::to_string(at) + "," +
              std::to_string(at + bytes) + "]}";
    at += bytes;
  }
  header += "}";
  while (header.size() % 8 != 0) header += ' ';
  std::vector<std::byte> out(8 + header.size() + at);
  const std::uint64_t size = header.size();
  std::memcpy(out.data(), &size, 8);
  std::memcpy(out.data() + 8, header.data(), size);
  return out;
}

std::string config_with(const std::string& more, const std::string& targets = R"(["q_proj","v_proj"])") {
  return R"({"peft_type":"LORA","r":4,"lora_alpha":8,"bias":"none","target_modules":)" + targets + (more.empty() ? "" : "," + more) + "}";
}

Error refusal(const std::string& config, const Shapes& shapes = sound_shapes(), const std::string& dtype = "F32") {
  const auto bytes = file_of(shapes, dtype);
  const auto r = LoraAdapter::parse(config, bytes, "x", small_model());
  if (!r) return r.error();
  ADD_FAILURE() << "was read: " << config;
  return {};
}

// As PEFT names them where the model is the text part of a whole.
TEST(Lora, NamesBelowALanguageModel) {
  const std::string layers = "model.layers.";
  Shapes nested;
  for (const auto& [name, shape] : sound_shapes()) {
    std::string deeper = name;
    nested[deeper.replace(deeper.find(layers), layers.size(), "model.language_model.layers.")] = shape;
  }
  const auto bytes = file_of(nested);
  const auto r =
      LoraAdapter::parse(config_with(R"("rank_pattern":{"model.language_model.layers.1.self_attn.q_proj":4})"), bytes, "x", small_model());
  ASSERT_TRUE(r) << r.error().what;
  EXPECT_EQ(r.value().pair(1, LoraTarget::q).rank, 4u);
  nested.insert(*sound_shapes().begin());
  EXPECT_EQ(refusal(config_with(""), nested).code, ErrorCode::unsupported) << "both namings";
}

TEST(Lora, ReadsTargetsRanksAndScale) {
  for (const std::string dtype : {"F32", "F16", "BF16"}) {
    const auto bytes = file_of(sound_shapes(), dtype);
    const auto r = LoraAdapter::parse(config_with(""), bytes, "x", small_model());
    ASSERT_TRUE(r) << r.error().what;
    EXPECT_EQ(r.value().rank(), 4u);
    EXPECT_EQ(r.value().layers(), 2u);
    const LoraPair& v = r.value().pair(1, LoraTarget::v);
    EXPECT_EQ(v.rank, 4u);
    EXPECT_EQ(v.scale, 2.0f);
    EXPECT_EQ(v.b.rows, 16u);
    EXPECT_STREQ(kernels::name(v.a.format), dtype.c_str());
    EXPECT_EQ(r.value().pair(0, LoraTarget::o).rank, 0u);
  }
}

TEST(Lora, ScaleWithRslora) {
  const auto bytes = file_of(sound_shapes());
  const auto r = LoraAdapter::parse(config_with(R"("use_rslora":true)"), bytes, "x", small_model());
  ASSERT_TRUE(r) << r.error().what;
  EXPECT_EQ(r.value().pair(0, LoraTarget::q).scale, 4.0f);
}

TEST(Lora, PatternsMatchNamesAndTheirEnds) {
  Shapes s = sound_shapes();
  s[tensor_name(1, "self_attn.q_proj", 'A')] = {8, 32};
  s[tensor_name(1, "self_attn.q_proj", 'B')] = {32, 8};
  const auto bytes = file_of(s);
  const auto r = LoraAdapter::parse(config_with(R"("rank_pattern":{"layers.1.self_attn.q_proj":8},"alpha_pattern":{"v_proj":32,"proj":1})"),
                                    bytes, "x", small_model());
  ASSERT_TRUE(r) << r.error().what;
  EXPECT_EQ(r.value().rank(), 8u);
  EXPECT_EQ(r.value().pair(0, LoraTarget::q).scale, 2.0f);
  EXPECT_EQ(r.value().pair(1, LoraTarget::q).scale, 1.0f);
  EXPECT_EQ(r.value().pair(0, LoraTarget::v).scale, 8.0f);
  EXPECT_NE(refusal(config_with(R"("rank_pattern":{"^model.*q_proj":8})"), s).what.find("regular expressions"), std::string::npos);
}

TEST(Lora, RefusesByNameWhatItDoesNotDo) {
  const std::pair<std::string, std::string> cases[] = {
      {config_with(R"("use_dora":true)"), "use_dora"},
      {config_with(R"("modules_to_save":["lm_head"])"), "modules_to_save"},
      {config_with(R"("lora_bias":true)"), "lora_bias"},
      {config_with(R"("fan_in_fan_out":true)"), "fan_in_fan_out"},
      {config_with(R"("layer_replication":[[0,1]])"), "layer_replication"},
      {config_with(R"("layers_to_transform":[0])"), "layers_to_transform"},
      {config_with(R"("trainable_token_indices":[1])"), "trainable_token_indices"},
      {config_with(R"("something_of_next_year":3)"), "something_of_next_year"},
      {config_with(R"("init_lora_weights":"pissa")"), "init_lora_weights"},
      {R"({"peft_type":"LORA","r":4,"lora_alpha":8,"bias":"all","target_modules":["q_proj","v_proj"]})", "bias"},
      {R"({"peft_type":"IA3","r":4,"lora_alpha":8,"target_modules":["q_proj","v_proj"]})", "peft_type"},
      {config_with("", R"(["q_proj","lm_head"])"), "lm_head"},
      {config_with("", R"(".*_proj")"), "target_modules"},
  };
  for (const auto& [config, field] : cases) {
    const Error e = refusal(config);
    EXPECT_EQ(e.code, ErrorCode::unsupported) << config;
    EXPECT_NE(e.what.find(field), std::string::npos) << e.what;
  }
}

TEST(Lora, RefusesFieldsThatAreMissingOrWrong) {
  EXPECT_EQ(refusal(R"({"peft_type":"LORA","lora_alpha":8,"target_modules":["q_proj"]})").code, ErrorCode::not_found);
  EXPECT_EQ(refusal(R"({"peft_type":"LORA","r":0,"lora_alpha":8,"target_modules":["q_proj"]})").code, ErrorCode::bad_file);
  EXPECT_EQ(refusal(R"({"peft_type":"LORA","r":4,"lora_alpha":"8","target_modules":["q_proj"]})").code, ErrorCode::bad_file);
  EXPECT_EQ(refusal(R"({"peft_type":"LORA","r":4,"lora_alpha":8,"target_modules":[]})").code, ErrorCode::bad_file);
  EXPECT_EQ(refusal(config_with(R"("rank_pattern":{"q_proj":1.5})")).code, ErrorCode::bad_file);
  EXPECT_EQ(refusal("[]").code, ErrorCode::bad_file);
  EXPECT_EQ(refusal("{").code, ErrorCode::bad_file);
  EXPECT_EQ(refusal(config_with(R"("alpha_pattern":{"q_proj":1e308,"v_proj":1e308})")).code, ErrorCode::bad_file);
}

TEST(Lora, RefusesTensorsThatDoNotFit) {
  const std::string a = tensor_name(1, "self_attn.v_proj", 'A'), b = tensor_name(1, "self_attn.v_proj", 'B');
  const auto without = [&](const std::string& name) {
    Shapes s = sound_shapes();
    s.erase(name);
    return s;
  };
  const auto with = [&](const std::string& name, std::vector<std::uint32_t> shape) {
    Shapes s = sound_shapes();
    s[name] = std::move(shape);
    return s;
  };
  for (const Shapes& s :
       {without(a), without(b), with(a, {5, 32}), with(a, {4, 31}), with(b, {32, 4}), with(b, {4, 16}), with(a, {4, 32, 1})}) {
    const Error e = refusal(config_with(""), s);
    EXPECT_EQ(e.code, ErrorCode::bad_file);
    EXPECT_NE(e.what.find("layers.1.self_attn.v_proj.lora_"), std::string::npos) << e.what;
  }
  EXPECT_EQ(refusal(config_with(""), sound_shapes(), "I64").code, ErrorCode::bad_file);
  for (const std::string& extra : {tensor_name(2, "self_attn.q_proj", 'A'), tensor_name(0, "mlp.up_proj", 'A'),
                                   std::string("base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector")}) {
    const Error e = refusal(config_with(""), with(extra, {4, 32}));
    EXPECT_EQ(e.code, ErrorCode::unsupported);
    EXPECT_NE(e.what.find(extra), std::string::npos) << e.what;
  }
}

TEST(Lora, OpensTheFoldersThatPeftWrote) {
  ModelConfig tiny;
  {
    std::ifstream in("tests/golden/tiny-llama/config.json");
    tiny = model_config_from_json(std::string(std::istreambuf_iterator<char>(in), {}), "", "tiny-llama").value();
  }
  const auto rank = [&](const char* adapter) {
    const auto r = LoraAdapter::open(std::string("tests/golden/tiny-llama/adapters/") + adapter, tiny);
    EXPECT_TRUE(r) << r.error().what;
    return r ? r.value().rank() : 0;
  };
  EXPECT_EQ(rank("all-r4"), 4u);
  EXPECT_EQ(rank("qv-r8"), 8u);
  EXPECT_EQ(rank("rslora-r16"), 16u);
  EXPECT_EQ(rank("pattern"), 8u);
  const auto pattern = LoraAdapter::open("tests/golden/tiny-llama/adapters/pattern", tiny);
  EXPECT_EQ(pattern.value().pair(1, LoraTarget::q).rank, 2u);
  EXPECT_EQ(pattern.value().pair(1, LoraTarget::q).scale, 4.0f);
  EXPECT_EQ(pattern.value().pair(1, LoraTarget::down).scale, 4.0f);
  const auto rslora = LoraAdapter::open("tests/golden/tiny-llama/adapters/rslora-r16", tiny);
  EXPECT_EQ(rslora.value().pair(0, LoraTarget::o).scale, 2.0f);

  EXPECT_EQ(LoraAdapter::open("tests/golden/no-such-folder", tiny).error().code, ErrorCode::not_found);
  EXPECT_EQ(LoraAdapter::open("tests/golden/tiny-llama", tiny).error().code, ErrorCode::not_found);
  tiny.width = 32;
  EXPECT_EQ(LoraAdapter::open("tests/golden/tiny-llama/adapters/qv-r8", tiny).error().code, ErrorCode::bad_file);
}

}  // namespace
}  // namespace troupe::device
