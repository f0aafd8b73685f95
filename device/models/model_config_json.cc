// The fields of config.json are those of transformers' LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config and
// Qwen3_5TextConfig; the last stands alone, or as `text_config` in a Qwen3_5Config, whose vision part is not read.
#include <fmt/format.h>

#include <cmath>

#include "device/models/json_fields.h"
#include "device/models/model_config.h"
#include "device/models/model_config_check.h"

namespace troupe::device {

namespace json = boost::json;

namespace {

Error unsupported(const JsonFields& f, const std::string& what) { return {ErrorCode::unsupported, f.where() + ": " + what}; }

Result<Architecture> read_architecture(const JsonFields& f) {
  constexpr const char* kKnown = "'llama', 'mistral', 'qwen2', 'qwen3' and 'qwen3_5_text' are supported";
  TROUPE_TRY(auto type, f.string("model_type"));
  const bool whole = type == "qwen3_5" && f.has("text_config");
  const auto architecture = type == "qwen3_5_text" || whole ? Architecture::qwen3_5
                            : type == "qwen3_5"             ? std::nullopt
                                                            : architecture_named(type);
  if (!architecture) return unsupported(f, fmt::format("field 'model_type' is {}; {}", shown_json(*f.find("model_type")), kKnown));
  constexpr const char* kClasses[] = {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM",
                                      "Qwen3_5ForCausalLM"};
  const char* const expected = whole ? "Qwen3_5ForConditionalGeneration" : kClasses[static_cast<std::size_t>(*architecture)];
  if (const json::value* v = f.find("architectures")) {
    if (!v->is_array()) return f.bad("architectures", "an array of strings");
    // Another class on the same decoder has another head.
    const json::array& all = v->get_array();
    if (all.size() != 1 || !all[0].is_string() || std::string_view(all[0].get_string()) != expected) {
      return unsupported(f, fmt::format("field 'architectures' is {}; [\"{}\"] is expected", shown_json(*v), expected));
    }
  }
  return *architecture;
}

// From transformers 5 on everything of RoPE is in `rope_parameters`; before, theta was a field of the whole and the rest
// in `rope_scaling` (null: none), where the kind was called "type" at first.
Result<void> read_rope(const JsonFields& f, ModelConfig& c) {
  const bool today = f.has("rope_parameters");
  TROUPE_TRY(c.rope_theta, f.number_or("rope_theta", 10000.0));
  TROUPE_TRY(auto part, f.number_or("partial_rotary_factor", c.architecture == Architecture::qwen3_5 ? 0.25 : 1.0));
  const char* const key = today ? "rope_parameters" : "rope_scaling";
  if (f.has(key)) {
    TROUPE_TRY(auto rope, f.object(key));
    TROUPE_TRY(c.rope_theta, rope.number_or("rope_theta", c.rope_theta));
    TROUPE_TRY(part, rope.number_or("partial_rotary_factor", part));
    TROUPE_TRY(auto old_kind, rope.string_or("type", today ? "default" : ""));
    TROUPE_TRY(auto kind, rope.string_or("rope_type", old_kind));
    RopeScaling& s = c.rope_scaling;
    if (kind == "linear" || kind == "llama3") {
      s.kind = kind == "linear" ? RopeScaling::Kind::linear : RopeScaling::Kind::llama3;
      TROUPE_TRY(s.factor, rope.number("factor"));
    } else if (kind.empty()) {
      return rope.bad("rope_type", "'default', 'linear' or 'llama3'");
    } else if (kind != "default") {
      return unsupported(rope, fmt::format("RoPE scaling '{}'; 'default', 'linear' and 'llama3' are supported", kind.substr(0, 40)));
    }
    if (s.kind == RopeScaling::Kind::llama3) {
      TROUPE_TRY(s.low_freq_factor, rope.number("low_freq_factor"));
      TROUPE_TRY(s.high_freq_factor, rope.number("high_freq_factor"));
      TROUPE_TRY(s.original_context, rope.number("original_max_position_embeddings"));
    }
  }
  if (!(part > 0.0) || !(part <= 1.0)) return f.bad("partial_rotary_factor", "a number above 0, at most 1,");
  c.rotated = static_cast<std::uint32_t>(part * c.head_dim);
  return success();
}

// Which layers are recurrent, and their shape. Positions of text are one number in all three parts of the interleaved RoPE.
Result<void> read_recurrent(const JsonFields& f, ModelConfig& c) {
  TROUPE_TRY(auto gated, f.boolean_or("attn_output_gate", true));
  if (!gated) return unsupported(f, "field 'attn_output_gate' is false; attention with an output gate is supported");
  c.gated_attention = c.norms_less_one = true;
  TROUPE_TRY(auto interval, f.count_or("full_attention_interval", 1, kMostOfAnything, 4));
  for (std::uint32_t i = 0; i < c.layers; ++i) c.recurrent.push_back((i + 1) % interval != 0);
  if (const json::value* v = f.find("layer_types")) {
    constexpr const char* kExpected = "an array of 'full_attention' and 'linear_attention', one a layer,";
    if (!v->is_array() || v->get_array().size() != c.layers) return f.bad("layer_types", kExpected);
    for (std::uint32_t i = 0; i < c.layers; ++i) {
      const json::value& kind = v->get_array()[i];
      c.recurrent[i] = kind == "linear_attention";
      if (!c.recurrent[i] && kind != "full_attention") return f.bad("layer_types", kExpected);
    }
  }
  TROUPE_TRY(c.delta.k_heads, f.count_or("linear_num_key_heads", 1, kMostOfAnything, 16));
  TROUPE_TRY(c.delta.v_heads, f.count_or("linear_num_value_heads", 1, kMostOfAnything, 32));
  TROUPE_TRY(c.delta.k_dim, f.count_or("linear_key_head_dim", 1, kMostHeadDim, 128));
  TROUPE_TRY(c.delta.v_dim, f.count_or("linear_value_head_dim", 1, kMostHeadDim, 128));
  TROUPE_TRY(c.delta.taps, f.count_or("linear_conv_kernel_dim", 1, kMostHeadDim, 4));
  return success();
}

// Llama's family has the window in every layer or in none. Qwen names the layers: all from max_window_layers on, or each.
Result<void> read_window(const JsonFields& f, ModelConfig& c) {
  TROUPE_TRY(c.sliding_window, f.count_or("sliding_window", 1, kMostOfAnything, 0));
  if (c.architecture == Architecture::llama) c.sliding_window = 0;
  std::uint32_t with = c.layers;
  if (c.architecture == Architecture::qwen2 || c.architecture == Architecture::qwen3) {
    TROUPE_TRY(auto used, f.boolean_or("use_sliding_window", false));
    TROUPE_TRY(auto first, f.count_or("max_window_layers", 0, kMostOfAnything, 28));
    with = !used || first >= c.layers ? 0 : c.layers - first;
  }
  if (const json::value* v = f.find("layer_types")) {
    constexpr const char* kExpected = "an array of 'full_attention' and 'sliding_attention', one a layer,";
    if (!v->is_array() || v->get_array().size() != c.layers) return f.bad("layer_types", kExpected);
    with = 0;
    for (const json::value& kind : v->get_array()) {
      const bool sliding = kind == "sliding_attention";
      if (!sliding && kind != "full_attention") return f.bad("layer_types", kExpected);
      with += sliding;
    }
  }
  if (c.sliding_window != 0 && with != 0 && with != c.layers) {
    return unsupported(f, fmt::format("a sliding window in {} of {} layers; all or none are supported", with, c.layers));
  }
  if (with == 0) c.sliding_window = 0;
  return success();
}

// A number or an array of numbers.
Result<void> read_eos(const JsonFields& f, ModelConfig& c) {
  const json::value* v = f.find("eos_token_id");
  if (v == nullptr) return success();
  const auto add = [&](const json::value& id) {
    const bool fits = id.is_int64() && id.get_int64() >= 0 && id.get_int64() < static_cast<std::int64_t>(c.vocab);
    if (fits) c.eos_ids.push_back(static_cast<Token>(id.get_int64()));
    return fits;
  };
  const std::string expected = fmt::format("an id below {}, or an array of them,", c.vocab);
  if (!v->is_array()) return add(*v) ? Result<void>(success()) : f.bad("eos_token_id", expected);
  if (v->get_array().size() > 1024) return f.bad("eos_token_id", expected);
  for (const json::value& id : v->get_array()) {
    if (!add(id)) return f.bad("eos_token_id", expected);
  }
  return success();
}

}  // namespace

namespace {

// `f`: the decoder's own fields.
Result<void> read_decoder(const JsonFields& f, ModelConfig& c) {
  if (f.has("quantization_config")) {
    return unsupported(
        f, "field 'quantization_config': quantized safetensors are not supported; take F32, F16 or BF16 weights, or a GGUF file");
  }
  TROUPE_TRY(auto act, f.string_or("hidden_act", "silu"));
  if (act != "silu")
    return unsupported(f, fmt::format("field 'hidden_act' is {}; \"silu\" is supported", shown_json(*f.find("hidden_act"))));
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    TROUPE_TRY(auto bias, f.boolean_or(key, false));
    if (bias) return unsupported(f, fmt::format("field '{}' is true; only Qwen2's biases of q, k and v are supported", key));
  }
  TROUPE_TRY(c.layers, f.count("num_hidden_layers", 1, kMostOfAnything));
  TROUPE_TRY(c.width, f.count("hidden_size", 1, kMostOfAnything));
  TROUPE_TRY(c.ffn, f.count("intermediate_size", 1, kMostOfAnything));
  TROUPE_TRY(c.heads, f.count("num_attention_heads", 1, kMostOfAnything));
  TROUPE_TRY(c.kv_heads, f.count_or("num_key_value_heads", 1, kMostOfAnything, c.heads));
  TROUPE_TRY(c.head_dim, f.count_or("head_dim", 1, kMostOfAnything, c.width / c.heads));
  TROUPE_TRY(c.vocab, f.count("vocab_size", 1, kMostOfAnything));
  TROUPE_TRY(c.context, f.count("max_position_embeddings", 1, kMostOfAnything));
  TROUPE_TRY(auto eps, f.number("rms_norm_eps"));
  c.eps = static_cast<float>(eps);
  TROUPE_TRY(c.tied, f.boolean_or("tie_word_embeddings", false));
  c.qkv_bias = c.architecture == Architecture::qwen2;
  c.qk_norm = c.architecture == Architecture::qwen3 || c.architecture == Architecture::qwen3_5;
  c.rope_pairs = RopePairs::halves;
  TROUPE_TRY(read_rope(f, c));
  if (c.architecture == Architecture::qwen3_5) {
    TROUPE_TRY(read_recurrent(f, c));
  } else {
    TROUPE_TRY(read_window(f, c));
  }
  TROUPE_TRY(read_eos(f, c));
  if (f.has("bos_token_id")) {
    TROUPE_TRY(c.bos_id, f.count("bos_token_id", 0, c.vocab - 1));
  }
  return success();
}

}  // namespace

Result<ModelConfig> model_config_from_json(std::string_view config, std::string_view generation_config, const std::string& folder) {
  TROUPE_TRY(auto value, parse_json(config, folder + "/config.json"));
  TROUPE_TRY(auto f, JsonFields::of(value, folder + "/config.json"));
  ModelConfig c;
  c.name = folder;
  TROUPE_TRY(c.architecture, read_architecture(f));
  if (c.architecture == Architecture::qwen3_5 && f.has("text_config")) {
    TROUPE_TRY(auto text, f.object("text_config"));
    TROUPE_TRY(read_decoder(text, c));
    TROUPE_TRY(c.tied, f.boolean_or("tie_word_embeddings", c.tied));  // the head is the whole's
    TROUPE_TRY(read_eos(f, c));
  } else {
    TROUPE_TRY(read_decoder(f, c));
  }
  if (!generation_config.empty()) {
    TROUPE_TRY(auto more, parse_json(generation_config, folder + "/generation_config.json"));
    TROUPE_TRY(auto g, JsonFields::of(more, folder + "/generation_config.json"));
    TROUPE_TRY(read_eos(g, c));
  }
  TROUPE_TRY(finish_config(c, f.where()));
  return c;
}

}  // namespace troupe::device
