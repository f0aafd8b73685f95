#include "device/models/llama_config.h"

#include <fmt/format.h>

#include <cmath>

#include "device/models/weights.h"

namespace troupe::device {

namespace {

constexpr std::uint64_t kMost = 1u << 24;  // of any count here; keeps products inside 64 bits

Error bad(const GgufFile& file, const std::string& what) { return {ErrorCode::bad_file, file.path() + ": " + what}; }

Result<std::uint32_t> count(const GgufFile& file, const char* key) {
  TROUPE_TRY(auto v, file.get_uint(key));
  if (v == 0 || v > kMost) return bad(file, fmt::format("{} is {}; 1 to {} is expected", key, v, kMost));
  return static_cast<std::uint32_t>(v);
}

Result<std::uint32_t> count_or(const GgufFile& file, const char* key, std::uint32_t otherwise) {
  if (!file.has(key)) return otherwise;
  return count(file, key);
}

Result<void> check_shapes(const GgufFile& file, const LlamaConfig& c) {
  if (c.heads % c.kv_heads != 0) return bad(file, fmt::format("{} query heads are no multiple of {} KV heads", c.heads, c.kv_heads));
  if (c.rotated % 2 != 0 || c.rotated > c.head_dim) {
    return bad(file,
               fmt::format("llama.rope.dimension_count is {}; an even number up to the head size {} is expected", c.rotated, c.head_dim));
  }
  if (static_cast<std::uint64_t>(c.heads) * c.head_dim > kMost) return bad(file, "heads * head size is absurd");
  for (const auto& [what, n] :
       {std::pair{"llama.embedding_length", c.width}, {"llama.feed_forward_length", c.ffn}, {"heads * head size", c.q_width()}}) {
    if (n % 32 != 0)
      return Error{ErrorCode::unsupported, fmt::format("{}: {} is {}; the kernels need a multiple of 32", file.path(), what, n)};
  }
  return success();
}

Result<std::vector<double>> frequencies(const GgufFile& file, std::uint32_t rotated) {
  double base = 10000.0, factor = 1.0;
  if (file.has("llama.rope.freq_base")) {
    TROUPE_TRY(base, file.get_float("llama.rope.freq_base"));
  }
  if (!(base > 1.0) || !std::isfinite(base))
    return bad(file, fmt::format("llama.rope.freq_base is {}; a number above 1 is expected", base));
  if (file.has("llama.rope.scaling.type")) {
    TROUPE_TRY(auto type, file.get_string("llama.rope.scaling.type"));
    if (type == "linear") {
      TROUPE_TRY(factor, file.get_float("llama.rope.scaling.factor"));
      if (!(factor >= 1.0) || !std::isfinite(factor))
        return bad(file, fmt::format("llama.rope.scaling.factor is {}; 1 or more is expected", factor));
    } else if (type != "none") {
      return Error{ErrorCode::unsupported,
                   fmt::format("{}: RoPE scaling \"{}\"; this build does linear scaling and rope_freqs.weight", file.path(), type)};
    }
  }
  const float* divisors = nullptr;
  if (file.tensor("rope_freqs.weight") != nullptr) {
    TROUPE_TRY(divisors, vector(file, "rope_freqs.weight", rotated / 2));
  }
  std::vector<double> f(rotated / 2);
  for (std::uint32_t i = 0; i < f.size(); ++i) {
    f[i] = std::pow(base, -2.0 * i / rotated) / factor;
    if (divisors != nullptr) f[i] /= divisors[i];
  }
  return f;
}

}  // namespace

Result<LlamaConfig> read_llama_config(const GgufFile& file) {
  TROUPE_TRY(auto architecture, file.get_string("general.architecture"));
  if (architecture != "llama") {
    return Error{ErrorCode::unsupported, fmt::format("{}: architecture \"{}\"; this build runs \"llama\"", file.path(), architecture)};
  }
  if (file.has("llama.expert_count")) {
    TROUPE_TRY(auto experts, file.get_uint("llama.expert_count"));
    if (experts != 0) return Error{ErrorCode::unsupported, file.path() + ": mixtures of experts are not supported"};
  }
  LlamaConfig c;
  c.name = file.path();
  if (file.has("general.name")) {
    TROUPE_TRY(auto name, file.get_string("general.name"));
    c.name = name;
  }
  TROUPE_TRY(c.layers, count(file, "llama.block_count"));
  TROUPE_TRY(c.width, count(file, "llama.embedding_length"));
  TROUPE_TRY(c.ffn, count(file, "llama.feed_forward_length"));
  TROUPE_TRY(c.heads, count(file, "llama.attention.head_count"));
  TROUPE_TRY(c.kv_heads, count_or(file, "llama.attention.head_count_kv", c.heads));
  TROUPE_TRY(c.context, count(file, "llama.context_length"));
  TROUPE_TRY(c.head_dim, count_or(file, "llama.attention.key_length", c.width / c.heads));
  TROUPE_TRY(auto value_dim, count_or(file, "llama.attention.value_length", c.head_dim));
  if (value_dim != c.head_dim || c.head_dim == 0) {
    return Error{ErrorCode::unsupported,
                 fmt::format("{}: keys of {} and values of {} elements; equal sizes are expected", file.path(), c.head_dim, value_dim)};
  }
  TROUPE_TRY(c.rotated, count_or(file, "llama.rope.dimension_count", c.head_dim));
  TROUPE_TRY(check_shapes(file, c));
  TROUPE_TRY(auto eps, file.get_float("llama.attention.layer_norm_rms_epsilon"));
  if (!(eps >= 0.0) || !(eps < 1.0)) return bad(file, fmt::format("llama.attention.layer_norm_rms_epsilon is {}; 0 to 1 is expected", eps));
  c.eps = static_cast<float>(eps);
  const GgufTensor* embedding = file.tensor("token_embd.weight");
  if (embedding == nullptr || embedding->dims.size() != 2 || embedding->dims[1] > kMost) {
    return bad(file, fmt::format("tensor token_embd.weight, a matrix [{}, vocabulary], is missing or has another shape", c.width));
  }
  c.vocab = static_cast<std::uint32_t>(embedding->dims[1]);
  TROUPE_TRY(auto vocab, count_or(file, "llama.vocab_size", c.vocab));
  if (vocab != c.vocab) return bad(file, fmt::format("llama.vocab_size is {}, but token_embd.weight has {} rows", vocab, c.vocab));
  TROUPE_TRY(c.inv_freq, frequencies(file, c.rotated));
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
    if (!file.has(key)) continue;
    TROUPE_TRY(auto id, file.get_uint(key));
    if (id >= c.vocab) return bad(file, fmt::format("{} is {}, outside the vocabulary of {}", key, id, c.vocab));
    if (c.eos_ids.empty() || c.eos_ids[0] != id) c.eos_ids.push_back(static_cast<Token>(id));
  }
  return c;
}

}  // namespace troupe::device
