#include "tools/bench/random_model.h"

#include <fmt/format.h>
#include <boost/json.hpp>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

namespace troupe::tools {
namespace {

struct Matrix {
  std::string name;
  std::uint64_t rows = 0, cols = 0;  // rows 0: a vector of ones
  std::uint64_t bytes() const { return 2 * std::max<std::uint64_t>(rows, 1) * cols; }
};

std::vector<Matrix> matrices(const ModelShape& s) {
  const std::uint64_t q = std::uint64_t{s.heads} * s.head_dim, kv = std::uint64_t{s.kv_heads} * s.head_dim;
  std::vector<Matrix> out{{"model.embed_tokens.weight", s.vocab, s.width}};
  for (std::uint32_t i = 0; i < s.layers; ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    out.push_back({layer + "input_layernorm.weight", 0, s.width});
    out.push_back({layer + "self_attn.q_proj.weight", q, s.width});
    out.push_back({layer + "self_attn.k_proj.weight", kv, s.width});
    out.push_back({layer + "self_attn.v_proj.weight", kv, s.width});
    out.push_back({layer + "self_attn.o_proj.weight", s.width, q});
    out.push_back({layer + "post_attention_layernorm.weight", 0, s.width});
    out.push_back({layer + "mlp.gate_proj.weight", s.ffn, s.width});
    out.push_back({layer + "mlp.up_proj.weight", s.ffn, s.width});
    out.push_back({layer + "mlp.down_proj.weight", s.width, s.ffn});
  }
  out.push_back({"model.norm.weight", 0, s.width});
  return out;
}

// Evenly from -0.035 to 0.035: the spread of a weight's usual 0.02. SplitMix64 (Steele, Lea, Flood 2014), four numbers a draw.
void fill(std::vector<std::uint16_t>& to, std::uint64_t& state) {
  for (std::size_t i = 0; i < to.size(); i += 4) {
    std::uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    for (std::size_t j = 0; j < 4 && i + j < to.size(); ++j, z >>= 16) {
      const float x = 0.035f / 32768.0f * static_cast<float>(static_cast<std::int16_t>(z));
      to[i + j] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16);
    }
  }
}

std::string config_json(const ModelShape& s) {
  return fmt::format(
      R"({{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": {}, "intermediate_size": {},
"num_hidden_layers": {}, "num_attention_heads": {}, "num_key_value_heads": {}, "head_dim": {}, "vocab_size": {},
"max_position_embeddings": {}, "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "tie_word_embeddings": true, "bos_token_id": 0,
"eos_token_id": 2, "torch_dtype": "bfloat16"}}
)",
      s.width, s.ffn, s.layers, s.heads, s.kv_heads, s.head_dim, s.vocab, s.context);
}

Result<void> write_tokenizer(std::uint32_t vocab, const std::string& folder, const std::string& from) {
  namespace json = boost::json;
  namespace fs = std::filesystem;
  std::error_code error;
  fs::copy_file(from + "/tokenizer_config.json", folder + "/tokenizer_config.json", fs::copy_options::overwrite_existing, error);
  std::ifstream in(from + "/tokenizer.json", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  json::value tokenizer = json::parse(text, error);
  json::value* const model = !error && tokenizer.is_object() ? tokenizer.get_object().if_contains("model") : nullptr;
  json::value* const tokens = model != nullptr && model->is_object() ? model->get_object().if_contains("vocab") : nullptr;
  if (tokens == nullptr || !tokens->is_object()) {
    return Error{ErrorCode::bad_file, fmt::format("{}/tokenizer.json: a tokenizer with a vocabulary is expected", from)};
  }
  std::int64_t next = 0;
  for (const auto& [name, id] : tokens->get_object()) next = std::max(next, id.is_int64() ? id.get_int64() + 1 : 0);
  if (const json::value* added = tokenizer.get_object().if_contains("added_tokens"); added != nullptr && added->is_array()) {
    for (const json::value& token : added->get_array()) {
      const json::value* id = token.is_object() ? token.get_object().if_contains("id") : nullptr;
      if (id != nullptr && id->is_int64()) next = std::max(next, id->get_int64() + 1);
    }
  }
  for (; next < vocab; ++next) tokens->get_object().emplace(fmt::format("unused{}", next), next);
  std::ofstream out(folder + "/tokenizer.json", std::ios::binary);
  out << json::serialize(tokenizer);
  out.close();
  if (!out) return Error{ErrorCode::io_failed, fmt::format("{}/tokenizer.json cannot be written", folder)};
  return success();
}

}  // namespace

std::optional<ModelShape> shape_named(std::string_view name) {
  if (name == "llama-1b") return ModelShape{2048, 8192, 16, 32, 8, 64, 128256, 2048};
  if (name == "tiny") return ModelShape{64, 160, 2, 4, 2, 16, 512, 512};
  return std::nullopt;
}

Result<void> write_random_model(const ModelShape& shape, const std::string& folder, const std::string& tokenizer_from, std::uint64_t seed) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::create_directories(folder, error);
  TROUPE_TRY(write_tokenizer(shape.vocab, folder, tokenizer_from));
  std::ofstream(folder + "/config.json") << config_json(shape);

  const std::vector<Matrix> all = matrices(shape);
  std::string header = "{";
  std::uint64_t at = 0;
  for (const Matrix& m : all) {
    header += fmt::format(R"({}"{}":{{"dtype":"BF16","shape":[{}{}],"data_offsets":[{},{}]}})", at == 0 ? "" : ",", m.name,
                          m.rows == 0 ? "" : fmt::format("{},", m.rows), m.cols, at, at + m.bytes());
    at += m.bytes();
  }
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::string path = folder + "/model.safetensors";
  std::ofstream out(path, std::ios::binary);
  const std::uint64_t header_size = header.size();
  out.write(reinterpret_cast<const char*>(&header_size), sizeof header_size);
  out << header;
  std::vector<std::uint16_t> part;
  for (const Matrix& m : all) {
    for (std::uint64_t left = m.bytes() / 2; left != 0 && out; left -= part.size()) {
      part.resize(std::min<std::uint64_t>(left, 1u << 19));
      if (m.rows == 0) {
        std::fill(part.begin(), part.end(), std::uint16_t{0x3f80});  // 1
      } else {
        fill(part, seed);
      }
      out.write(reinterpret_cast<const char*>(part.data()), static_cast<std::streamsize>(2 * part.size()));
    }
  }
  out.close();
  if (!out) return Error{ErrorCode::io_failed, fmt::format("{} cannot be written: is there {} MB of room?", path, at / 1000000)};
  return success();
}

}  // namespace troupe::tools
