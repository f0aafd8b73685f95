// GGUF metadata keys: github.com/ggml-org/ggml, docs/gguf.md; those of an architecture begin with its name.
#include <fmt/format.h>

#include <cmath>

#include "device/models/model_config.h"
#include "device/models/model_config_check.h"

namespace troupe::device {

namespace {

class GgufKeys {
 public:
  GgufKeys(const GgufFile& file, std::string_view architecture) : file_(file), prefix_(std::string(architecture) + ".") {}

  bool has(const char* key) const { return file_.has(prefix_ + key); }
  Result<std::uint32_t> count(const char* key) const {
    const std::string full = prefix_ + key;
    TROUPE_TRY(auto v, file_.get_uint(full));
    if (v == 0 || v > kMostOfAnything) {
      return Error{ErrorCode::bad_file, fmt::format("{}: key '{}' is {}; 1 to {} is expected", file_.path(), full, v, kMostOfAnything)};
    }
    return static_cast<std::uint32_t>(v);
  }
  Result<std::uint32_t> count_or(const char* key, std::uint32_t otherwise) const {
    if (!has(key)) return otherwise;
    return count(key);
  }
  Result<double> number(const char* key) const { return file_.get_float(prefix_ + key); }
  Result<double> number_or(const char* key, double otherwise) const {
    if (!has(key)) return otherwise;
    return number(key);
  }
  Result<std::string_view> string(const char* key) const { return file_.get_string(prefix_ + key); }
  Result<std::uint64_t> uint(const char* key) const { return file_.get_uint(prefix_ + key); }

 private:
  const GgufFile& file_;
  std::string prefix_;
};

Result<void> read_rope(const GgufFile& file, const GgufKeys& keys, ModelConfig& c) {
  TROUPE_TRY(c.rope_theta, keys.number_or("rope.freq_base", 10000.0));
  if (keys.has("rope.scaling.type")) {
    TROUPE_TRY(auto type, keys.string("rope.scaling.type"));
    if (type == "linear") {
      c.rope_scaling.kind = RopeScaling::Kind::linear;
      TROUPE_TRY(c.rope_scaling.factor, keys.number("rope.scaling.factor"));
    } else if (type != "none") {
      return Error{ErrorCode::unsupported, fmt::format("{}: RoPE scaling '{}'; 'none', 'linear' and rope_freqs.weight are supported",
                                                       file.path(), type.substr(0, 40))};
    }
  }
  const StoredTensor* divisors = file.tensor("rope_freqs.weight");
  if (divisors == nullptr) return success();
  // llama3 scaling as GGUF has it: what each frequency is divided by.
  if (divisors->type != TensorType::F32 || divisors->dims.size() != 1 || divisors->dims[0] != c.rotated / 2) {
    return Error{ErrorCode::bad_file, fmt::format("{}: tensor rope_freqs.weight is {} {}; F32 [{}] is expected", file.path(),
                                                  name(divisors->type), shape_text(divisors->dims), c.rotated / 2)};
  }
  c.inv_freq = rope_frequencies(c.rope_theta, c.rotated, c.rope_scaling);
  const auto* d = reinterpret_cast<const float*>(divisors->data);
  for (std::size_t i = 0; i < c.inv_freq.size(); ++i) c.inv_freq[i] /= d[i];
  return success();
}

}  // namespace

Result<ModelConfig> model_config_from_gguf(const GgufFile& file) {
  TROUPE_TRY(auto written, file.get_string("general.architecture"));
  const auto architecture = architecture_named(written);
  // Mistral's files say `llama`.
  if (!architecture || *architecture == Architecture::mistral || *architecture == Architecture::qwen3_5) {
    return Error{ErrorCode::unsupported,
                 fmt::format("{}: architecture '{}'; 'llama', 'qwen2' and 'qwen3' are supported", file.path(), written.substr(0, 40))};
  }
  const GgufKeys keys(file, written);
  if (keys.has("expert_count")) {
    TROUPE_TRY(auto experts, keys.uint("expert_count"));
    if (experts != 0) return Error{ErrorCode::unsupported, file.path() + ": mixtures of experts are not supported"};
  }
  ModelConfig c;
  c.architecture = *architecture;
  c.name = file.path();
  if (file.has("general.name")) {
    TROUPE_TRY(auto name, file.get_string("general.name"));
    c.name = name;
  }
  TROUPE_TRY(c.layers, keys.count("block_count"));
  TROUPE_TRY(c.width, keys.count("embedding_length"));
  TROUPE_TRY(c.ffn, keys.count("feed_forward_length"));
  TROUPE_TRY(c.heads, keys.count("attention.head_count"));
  TROUPE_TRY(c.kv_heads, keys.count_or("attention.head_count_kv", c.heads));
  TROUPE_TRY(c.context, keys.count("context_length"));
  TROUPE_TRY(c.head_dim, keys.count_or("attention.key_length", c.width / c.heads));
  TROUPE_TRY(auto value_dim, keys.count_or("attention.value_length", c.head_dim));
  if (value_dim != c.head_dim) {
    return Error{ErrorCode::unsupported,
                 fmt::format("{}: keys of {} and values of {} elements; equal sizes are expected", file.path(), c.head_dim, value_dim)};
  }
  TROUPE_TRY(c.rotated, keys.count_or("rope.dimension_count", c.head_dim));
  TROUPE_TRY(c.sliding_window, keys.count_or("attention.sliding_window", 0));
  TROUPE_TRY(auto eps, keys.number("attention.layer_norm_rms_epsilon"));
  c.eps = static_cast<float>(eps);
  c.rope_pairs = c.architecture == Architecture::llama ? RopePairs::interleaved : RopePairs::halves;
  TROUPE_TRY(read_rope(file, keys, c));

  const StoredTensor* embedding = file.tensor("token_embd.weight");
  if (embedding == nullptr || embedding->dims.size() != 2 || embedding->dims[1] > kMostOfAnything) {
    return Error{
        ErrorCode::bad_file,
        fmt::format("{}: tensor token_embd.weight, a matrix [{}, vocabulary], is missing or has another shape", file.path(), c.width)};
  }
  c.vocab = static_cast<std::uint32_t>(embedding->dims[1]);
  TROUPE_TRY(auto vocab, keys.count_or("vocab_size", c.vocab));
  if (vocab != c.vocab) {
    return Error{ErrorCode::bad_file,
                 fmt::format("{}: key '{}.vocab_size' is {}, but token_embd.weight has {} rows", file.path(), written, vocab, c.vocab)};
  }
  c.tied = file.tensor("output.weight") == nullptr;
  c.qkv_bias = file.tensor("blk.0.attn_q.bias") != nullptr;
  c.qk_norm = file.tensor("blk.0.attn_q_norm.weight") != nullptr;
  if (file.tensor("blk.0.attn_output.bias") != nullptr) {
    return Error{ErrorCode::unsupported,
                 file.path() + ": tensor blk.0.attn_output.bias: a bias of the attention's output is not supported"};
  }

  for (const char* key : {"eos_token_id", "eot_token_id", "eom_token_id", "bos_token_id"}) {
    const std::string full = std::string("tokenizer.ggml.") + key;
    if (!file.has(full)) continue;
    TROUPE_TRY(auto id, file.get_uint(full));
    if (id >= c.vocab) {
      return Error{ErrorCode::bad_file, fmt::format("{}: key '{}' is {}, outside the vocabulary of {}", file.path(), full, id, c.vocab)};
    }
    if (key[0] == 'b') {
      c.bos_id = static_cast<Token>(id);
    } else {
      c.eos_ids.push_back(static_cast<Token>(id));
    }
  }
  TROUPE_TRY(finish_config(c, file.path()));
  return c;
}

}  // namespace troupe::device
