#include "tools/bench/random_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <fstream>
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
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) {
    fs::copy_file(fs::path(tokenizer_from) / name, fs::path(folder) / name, fs::copy_options::overwrite_existing, error);
    if (error) return Error{ErrorCode::not_found, fmt::format("{}/{} cannot be copied: {}", tokenizer_from, name, error.message())};
  }
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
