// What a GGUF file of architecture `llama` says about its model (keys: github.com/ggml-org/ggml, docs/gguf.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/models/gguf.h"
#include "messages/error.h"
#include "messages/ids.h"

namespace troupe::device {

struct LlamaConfig {
  std::string name;
  std::uint32_t vocab = 0;
  std::uint32_t layers = 0;
  std::uint32_t width = 0;
  std::uint32_t ffn = 0;
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t rotated = 0;  // elements of a head that RoPE turns
  std::uint32_t context = 0;
  float eps = 1e-5f;
  std::vector<double> inv_freq;  // [rotated / 2], radians per position; scaling is applied
  std::vector<Token> eos_ids;

  std::uint32_t q_width() const { return heads * head_dim; }
  std::uint32_t kv_width() const { return kv_heads * head_dim; }
};

// bad_file: a key is missing or contradicts another, naming it; unsupported: another architecture, or a part that
// this forward pass does not have (experts, a RoPE scaling other than linear or by rope_freqs.weight).
Result<LlamaConfig> read_llama_config(const GgufFile& file);

}  // namespace troupe::device
