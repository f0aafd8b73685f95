// What a model's file says about its shape: one description of a family of decoders (Llama, Mistral, Qwen2, Qwen3, and the
// text part of Qwen3.5) that GGUF metadata and a config.json fill alike. All of them are RMSNorm, grouped-query attention with
// RoPE, a SiLU-gated feed-forward and residual sums; what differs is an option here. Qwen3.5 is hybrid: most of its layers are
// recurrent (the gated delta rule), without attention.
//
// Invariants of what is answered: counts are 1 to 2^24, head_dim at most 2^16, heads is a multiple of kv_heads, rotated is even and at most
// head_dim, inv_freq has rotated / 2 finite positive entries, ids are inside the vocabulary; of
// recurrent layers v_heads is a multiple of k_heads, there are 2 to 16 taps, and not every layer is one.
// Values only: any thread.
#pragma once

#include <algorithm>
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

enum class Architecture : std::uint8_t { llama, mistral, qwen2, qwen3, qwen3_5 };
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

// Of the recurrent layers: heads and their sizes, and the taps of the causal convolution before them.
struct DeltaShape {
  std::uint32_t k_heads = 0;
  std::uint32_t v_heads = 0;
  std::uint32_t k_dim = 0;
  std::uint32_t v_dim = 0;
  std::uint32_t taps = 0;
  std::uint32_t value_width() const { return v_heads * v_dim; }
  std::uint32_t channels() const { return 2 * k_heads * k_dim + value_width(); }
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
  bool tied = false;             // the output matrix is the embedding, whether or not the file has another
  bool qkv_bias = false;         // attn_q.bias, attn_k.bias, attn_v.bias
  bool qk_norm = false;          // attn_q_norm.weight and attn_k_norm.weight, [head_dim], on each head before RoPE
  bool gated_attention = false;  // attn_q has heads of q and of a gate in turn; the gate's sigmoid multiplies what was attended
  bool norms_less_one = false;   // norms are stored as weight - 1, but those inside recurrent layers
  std::vector<bool> recurrent;   // by layer; empty: none is
  DeltaShape delta;              // of those that are
  std::vector<double> inv_freq;  // [rotated / 2], radians per position; scaling is applied
  std::vector<Token> eos_ids;    // each ends a reply; ascending
  std::optional<Token> bos_id;

  std::uint32_t q_width() const { return heads * head_dim; }
  std::uint32_t kv_width() const { return kv_heads * head_dim; }
  std::uint32_t q_rows() const { return gated_attention ? 2 * q_width() : q_width(); }  // of attn_q
  bool is_recurrent(std::uint32_t layer) const { return !recurrent.empty() && recurrent[layer]; }
  std::uint32_t recurrent_layers() const { return static_cast<std::uint32_t>(std::count(recurrent.begin(), recurrent.end(), true)); }
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
