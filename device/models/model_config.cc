#include "device/models/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "device/models/model_config_check.h"

namespace troupe::device {

const char* name(Architecture architecture) {
  switch (architecture) {
    case Architecture::llama:
      return "llama";
    case Architecture::mistral:
      return "mistral";
    case Architecture::qwen2:
      return "qwen2";
    case Architecture::qwen3:
      return "qwen3";
    case Architecture::qwen3_5:
      return "qwen3_5";
  }
  return "?";
}

std::string shape_text(const std::vector<std::uint64_t>& dims) {
  std::string text;
  for (const std::uint64_t d : dims) text += fmt::format("{}{}", text.empty() ? "" : ", ", d);
  return "[" + text + "]";
}

std::optional<Architecture> architecture_named(std::string_view text) {
  for (const Architecture a :
       {Architecture::llama, Architecture::mistral, Architecture::qwen2, Architecture::qwen3, Architecture::qwen3_5}) {
    if (text == name(a)) return a;
  }
  return std::nullopt;
}

std::vector<double> rope_frequencies(double theta, std::uint32_t rotated, const RopeScaling& scaling) {
  std::vector<double> f(rotated / 2);
  for (std::uint32_t i = 0; i < f.size(); ++i) {
    f[i] = std::pow(theta, -2.0 * i / rotated);
    if (scaling.kind == RopeScaling::Kind::linear) f[i] /= scaling.factor;
    if (scaling.kind != RopeScaling::Kind::llama3) continue;
    const double wavelength = 2.0 * std::numbers::pi / f[i];
    const double longest = scaling.original_context / scaling.low_freq_factor;
    const double shortest = scaling.original_context / scaling.high_freq_factor;
    if (wavelength < shortest) continue;
    if (wavelength > longest) {
      f[i] /= scaling.factor;
    } else {
      const double kept =
          (scaling.original_context / wavelength - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
      f[i] = (1.0 - kept) * f[i] / scaling.factor + kept * f[i];
    }
  }
  return f;
}

Result<void> finish_config(ModelConfig& c, const std::string& where) {
  const auto bad = [&](const std::string& what) { return Error{ErrorCode::bad_file, where + ": " + what}; };
  if (c.heads % c.kv_heads != 0) return bad(fmt::format("{} query heads are no multiple of {} KV heads", c.heads, c.kv_heads));
  if (c.head_dim == 0) return bad(fmt::format("a head size of 0: width {} is less than {} heads", c.width, c.heads));
  if (c.head_dim > kMostHeadDim) return bad(fmt::format("a head size of {}; at most {} is expected", c.head_dim, kMostHeadDim));
  if (c.rotated == 0 || c.rotated % 2 != 0 || c.rotated > c.head_dim) {
    return bad(
        fmt::format("RoPE turns {} elements of a head; an even number from 2 to the head size {} is expected", c.rotated, c.head_dim));
  }
  if (static_cast<std::uint64_t>(c.heads) * c.head_dim > kMostOfAnything) {
    return bad(fmt::format("{} heads of {} elements; at most {} elements are expected", c.heads, c.head_dim, kMostOfAnything));
  }
  if (!(c.eps >= 0.0f) || !(c.eps < 1.0f)) return bad(fmt::format("the norms' epsilon is {}; 0 to 1 is expected", c.eps));
  if (!(c.rope_theta > 1.0) || !std::isfinite(c.rope_theta)) {
    return bad(fmt::format("the RoPE base (theta) is {}; a number above 1 is expected", c.rope_theta));
  }
  const RopeScaling& s = c.rope_scaling;
  if (s.kind != RopeScaling::Kind::none && !(s.factor >= 1.0)) {
    return bad(fmt::format("the RoPE scaling factor is {}; 1 or more is expected", s.factor));
  }
  if (s.kind == RopeScaling::Kind::llama3) {
    if (!(s.low_freq_factor > 0.0) || !(s.high_freq_factor > s.low_freq_factor)) {
      return bad(fmt::format("the llama3 RoPE scaling has low_freq_factor {} and high_freq_factor {}; 0 < low < high is expected",
                             s.low_freq_factor, s.high_freq_factor));
    }
    if (!(s.original_context >= 1.0)) {
      return bad(fmt::format("the llama3 RoPE scaling has original_max_position_embeddings {}; 1 or more is expected", s.original_context));
    }
  }
  if (const std::uint32_t n = c.recurrent_layers(); n != 0) {
    const DeltaShape& d = c.delta;
    if (n == c.layers) return Error{ErrorCode::unsupported, where + ": every layer is recurrent; at least one with attention is expected"};
    if (d.k_heads == 0 || d.v_heads % d.k_heads != 0) {
      return bad(fmt::format("{} value heads of the recurrent layers are no multiple of {} key heads", d.v_heads, d.k_heads));
    }
    if (d.taps < 2 || d.taps > 16) return bad(fmt::format("a convolution of {} taps; 2 to 16 are expected", d.taps));
    if (static_cast<std::uint64_t>(d.k_heads) * d.k_dim > kMostOfAnything ||
        static_cast<std::uint64_t>(d.v_heads) * d.v_dim > kMostOfAnything) {
      return bad(fmt::format("recurrent heads of {} x {} and {} x {} elements; at most {} are expected", d.k_heads, d.k_dim, d.v_heads,
                             d.v_dim, kMostOfAnything));
    }
  }
  if (c.inv_freq.empty()) c.inv_freq = rope_frequencies(c.rope_theta, c.rotated, s);
  for (const double f : c.inv_freq) {
    if (!(f > 0.0) || !std::isfinite(f)) return bad(fmt::format("RoPE has a frequency of {}; positive numbers are expected", f));
  }
  std::sort(c.eos_ids.begin(), c.eos_ids.end());
  c.eos_ids.erase(std::unique(c.eos_ids.begin(), c.eos_ids.end()), c.eos_ids.end());
  for (const Token id : c.eos_ids) {
    if (id >= c.vocab) return bad(fmt::format("the end-of-text id {} is outside the vocabulary of {}", id, c.vocab));
  }
  if (c.bos_id && *c.bos_id >= c.vocab)
    return bad(fmt::format("the begin-of-text id {} is outside the vocabulary of {}", *c.bos_id, c.vocab));
  return success();
}

namespace {

Result<void> check_tensor(const TensorSource& source, const std::string& name, const std::vector<std::uint64_t>& dims) {
  const StoredTensor* t = source.tensor(name);
  if (t == nullptr) {
    return Error{ErrorCode::bad_file,
                 fmt::format("{}: tensor {} is missing; one of shape {} is expected", source.path(), name, shape_text(dims))};
  }
  if (t->dims != dims) {
    return Error{ErrorCode::bad_file,
                 fmt::format("{}: tensor {} has the shape {}; {} is expected", source.path(), name, shape_text(t->dims), shape_text(dims))};
  }
  return success();
}

}  // namespace

Result<void> check_tensors(const TensorSource& source, const ModelConfig& c) {
  TROUPE_TRY(check_tensor(source, "token_embd.weight", {c.width, c.vocab}));
  TROUPE_TRY(check_tensor(source, "output_norm.weight", {c.width}));
  if (!c.tied) {
    TROUPE_TRY(check_tensor(source, "output.weight", {c.width, c.vocab}));
  }
  struct Part {
    const char* name;
    std::vector<std::uint64_t> dims;
  };
  const std::vector<Part> every{
      {"attn_norm.weight", {c.width}},     {"ffn_norm.weight", {c.width}},        {"ffn_gate.weight", {c.width, c.ffn}},
      {"ffn_up.weight", {c.width, c.ffn}}, {"ffn_down.weight", {c.ffn, c.width}},
  };
  std::vector<Part> parts{
      {"attn_q.weight", {c.width, c.q_rows()}},
      {"attn_k.weight", {c.width, c.kv_width()}},
      {"attn_v.weight", {c.width, c.kv_width()}},
      {"attn_output.weight", {c.q_width(), c.width}},
  };
  const DeltaShape& d = c.delta;
  const std::vector<Part> recurrent{
      {"attn_qkv.weight", {c.width, d.channels()}},
      {"attn_gate.weight", {c.width, d.value_width()}},
      {"ssm_alpha.weight", {c.width, d.v_heads}},
      {"ssm_beta.weight", {c.width, d.v_heads}},
      {"ssm_conv1d.weight", {d.taps, 1, d.channels()}},
      {"ssm_a_log", {d.v_heads}},
      {"ssm_dt.bias", {d.v_heads}},
      {"ssm_norm.weight", {d.v_dim}},
      {"ssm_out.weight", {d.value_width(), c.width}},
  };
  if (c.qkv_bias) {
    parts.push_back({"attn_q.bias", {c.q_width()}});
    parts.push_back({"attn_k.bias", {c.kv_width()}});
    parts.push_back({"attn_v.bias", {c.kv_width()}});
  }
  if (c.qk_norm) {
    parts.push_back({"attn_q_norm.weight", {c.head_dim}});
    parts.push_back({"attn_k_norm.weight", {c.head_dim}});
  }
  for (std::uint32_t layer = 0; layer < c.layers; ++layer) {
    for (const auto* list : {&every, c.is_recurrent(layer) ? &recurrent : &parts}) {
      for (const Part& p : *list) {
        TROUPE_TRY(check_tensor(source, fmt::format("blk.{}.{}", layer, p.name), p.dims));
      }
    }
  }
  return success();
}

}  // namespace troupe::device
