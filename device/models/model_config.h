// What a model's file says about its shape: one description of a family of decoders (Llama, Mistral, Qwen2, Qwen3) that
// GGUF metadata and a config.json fill alike. All of them are RMSNorm, grouped-query attention with RoPE, a SiLU-gated
// feed-forward and residual sums; what differs is an option here.
//
// Invariants of what is answered: counts are 1 to 2^24, head_dim at most 2^16, heads is a multiple of kv_heads, rotated is even and at most
// head_dim, inv_freq has rotated / 2 finite positive entries, ids are inside the vocabulary.
// Values only: any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "device/models/gguf.h"
#include "device/models/tensor_source.h"
#include "messages/error.h"
#include "messages/ids.h"

namespace troupe::device {

enum class Architecture : std::uint8_t { llama, mistral, qwen2, qwen3 };
const char* name(Architecture architecture);  // "llama"

// Which elements of a head RoPE turns together: 2i and 2i+1, or i and i + rotated/2. GGUF's `llama` stores q and k with
// their rows permuted for the first; GGUF's qwen2 and qwen3, and every safetensors folder, are as the second. Bringing
// `halves` to `interleaved`: row i of a head's rotated rows becomes row 2i, row i + rotated/2 becomes row 2i+1.
enum class RopePairs : std::uint8_t { interleaved, halves };

struct RopeScaling {
  enum class Kind : std::uint8_t { none, linear, llama3 };
  Kind kind = Kind::none;
  double factor = 1.0;
  double low_freq_factor = 1.0;   // llama3
  double high_freq_factor = 4.0;  // llama3
  double original_context = 0.0;  // llama3, positions
};

struct ModelConfig {
  Architecture architecture = Architecture::llama;
  std::string name;
  std::uint32_t vocab = 0;
  std::uint32_t layers = 0;
  std::uint32_t width = 0;
  std::uint32_t ffn = 0;
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;        // need not be width / heads
  std::uint32_t context = 0;         // positions
  std::uint32_t sliding_window = 0;  // a position sees itself and the window - 1 before it, in every layer; 0 = all
  std::uint32_t rotated = 0;         // leading elements of a head that RoPE turns
  RopePairs rope_pairs = RopePairs::interleaved;
  double rope_theta = 10000.0;
  RopeScaling rope_scaling;
  float eps = 1e-5f;
  bool tied = false;      // the output matrix is the embedding, whether or not the file has another
  bool qkv_bias = false;  // attn_q.bias, attn_k.bias, attn_v.bias
  bool qk_norm = false;   // attn_q_norm.weight and attn_k_norm.weight, [head_dim], on each head before RoPE
  std::vector<double> inv_freq;  // [rotated / 2], radians per position; scaling is applied
  std::vector<Token> eos_ids;    // each ends a reply; ascending
  std::optional<Token> bos_id;

  std::uint32_t q_width() const { return heads * head_dim; }
  std::uint32_t kv_width() const { return kv_heads * head_dim; }
};

// bad_file, not_found: a key is missing or contradicts another, naming it; unsupported: another architecture, or a part
// that the forward pass does not have (experts, RoPE scaling other than linear, llama3 or by rope_freqs.weight).
Result<ModelConfig> model_config_from_gguf(const GgufFile& file);

// The same from a config.json, and the generation_config.json beside it ("" = there is none), of transformers 5
// (`rope_parameters`) or of the time before it (`rope_theta`, `rope_scaling`). `folder` names both in errors.
Result<ModelConfig> model_config_from_json(std::string_view config, std::string_view generation_config, const std::string& folder);

// [rotated / 2]: theta^(-2i / rotated), scaled. llama3: transformers, modeling_rope_utils.py; wavelengths above
// original_context / low_freq_factor are slowed by factor, those below original_context / high_freq_factor are kept, and
// between them the two are mixed.
std::vector<double> rope_frequencies(double theta, std::uint32_t rotated, const RopeScaling& scaling);

// Whether every tensor that the model needs is there with the right shape. bad_file: names file, tensor and expectation.
Result<void> check_tensors(const TensorSource& source, const ModelConfig& config);

}  // namespace troupe::device
