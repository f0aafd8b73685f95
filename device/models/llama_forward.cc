#include "device/models/llama_forward.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <tuple>
#include <type_traits>

namespace troupe::device {

Result<LlamaWeights> load_llama_weights(const TensorSource& source, const ModelConfig& c) {
  LlamaWeights w;
  TROUPE_TRY(w.embedding, matrix(source, "token_embd.weight", c.vocab, c.width));
  // Norms are stored as they multiply, or less one.
  const auto norm = [&](std::string_view name, std::uint32_t n) -> Result<const float*> {
    if (!c.norms_less_one) return vector(source, name, n, w.owned);
    TROUPE_TRY(float* gains, floats(source, name, {n}, w.owned));
    for (std::uint32_t i = 0; i < n; ++i) gains[i] += 1.0f;
    return gains;
  };
  TROUPE_TRY(w.output_norm, norm("output_norm.weight", c.width));
  w.output = w.embedding;
  if (!c.tied) {
    TROUPE_TRY(w.output, matrix(source, "output.weight", c.vocab, c.width));
  }
  for (std::uint32_t i = 0; i < c.layers; ++i) {
    const auto name = [i](const char* part) { return fmt::format("blk.{}.{}", i, part); };
    LlamaLayer l;
    TROUPE_TRY(l.attn_norm, norm(name("attn_norm.weight"), c.width));
    TROUPE_TRY(l.ffn_norm, norm(name("ffn_norm.weight"), c.width));
    TROUPE_TRY(l.gate, matrix(source, name("ffn_gate.weight"), c.ffn, c.width));
    TROUPE_TRY(l.up, matrix(source, name("ffn_up.weight"), c.ffn, c.width));
    TROUPE_TRY(l.down, matrix(source, name("ffn_down.weight"), c.width, c.ffn));
    l.recurrent = c.is_recurrent(i);
    if (l.recurrent) {
      TROUPE_TRY(l.delta, load_delta_layer(source, c, i, w.owned));
      w.layers.push_back(l);
      continue;
    }
    TROUPE_TRY(l.q, matrix(source, name("attn_q.weight"), c.q_rows(), c.width));
    TROUPE_TRY(l.k, matrix(source, name("attn_k.weight"), c.kv_width(), c.width));
    TROUPE_TRY(l.v, matrix(source, name("attn_v.weight"), c.kv_width(), c.width));
    if (c.qkv_bias) {
      TROUPE_TRY(l.q_bias, vector(source, name("attn_q.bias"), c.q_width(), w.owned));
      TROUPE_TRY(l.k_bias, vector(source, name("attn_k.bias"), c.kv_width(), w.owned));
      TROUPE_TRY(l.v_bias, vector(source, name("attn_v.bias"), c.kv_width(), w.owned));
    }
    if (c.qk_norm) {
      TROUPE_TRY(l.q_norm, norm(name("attn_q_norm.weight"), c.head_dim));
      TROUPE_TRY(l.k_norm, norm(name("attn_k_norm.weight"), c.head_dim));
    }
    TROUPE_TRY(l.o, matrix(source, name("attn_output.weight"), c.width, c.q_width()));
    w.layers.push_back(l);
  }
  return w;
}

void llama_forward(kernels::Kernels& k, const ModelConfig& c, const LlamaWeights& w, const double* inv_freq, const LlamaScratch& s,
                   const LlamaCaches& caches, const kernels::FeedArgs& feed, const LlamaLora& lora, std::uint32_t n,
                   std::uint32_t n_outputs) {
  k.feed_resolve(feed);
  llama_layers(k, c, w, inv_freq, s, caches, feed, lora, n, n_outputs);
}

void llama_layers(kernels::Kernels& k, const ModelConfig& c, const LlamaWeights& w, const double* inv_freq, const LlamaScratch& s,
                  const LlamaCaches& caches, const kernels::FeedArgs& feed, const LlamaLora& lora, std::uint32_t n,
                  std::uint32_t n_outputs) {
  using kernels::MatmulJob;
  if (n == 0) return;
  k.embed(w.embedding, s.tokens, n, s.x);
  k.rope_angles(s.tokens, n, inv_freq, c.rotated / 2, s.angles);
  const std::size_t qkv = c.q_width() + 2 * static_cast<std::size_t>(c.kv_width());
  float* const key = s.qkv + c.q_width();
  float* const value = key + c.kv_width();
  const float scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
  struct Adapted {
    LoraTarget target;
    float* y;
    std::size_t stride;
  };
  // What adapters add where the base model's product stands already, biases included.
  const auto adapt = [&](std::uint32_t layer, const auto& outputs, const float* x, std::uint32_t cols) {
    if (lora.runs.empty()) return;
    std::array<kernels::LoraJob, std::tuple_size_v<std::remove_cvref_t<decltype(outputs)>>> jobs;
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      const Adapted& o = outputs[j];
      jobs[j] = {lora.adapters->slots(layer, o.target), lora_shape(c, o.target).rows, o.y, o.stride};
    }
    k.lora(jobs, lora.runs, x, cols);
  };
  // The layer's part before the feed-forward; `ordinal` among those with attention.
  const auto attend = [&](const LlamaLayer& l, std::uint32_t i, std::uint32_t ordinal) {
    float* const query = c.gated_attention ? s.pairs : s.qkv;
    const std::size_t query_stride = c.gated_attention ? c.q_rows() : qkv;
    k.matmul(std::array{MatmulJob{l.q, query, query_stride, false, l.q_bias}, MatmulJob{l.k, key, qkv, false, l.k_bias},
                        MatmulJob{l.v, value, qkv, false, l.v_bias}},
             s.h, n, c.width);
    adapt(i, std::array{Adapted{LoraTarget::q, query, query_stride}, Adapted{LoraTarget::k, key, qkv}, Adapted{LoraTarget::v, value, qkv}},
          s.h, c.width);
    if (c.gated_attention) k.split_heads(s.pairs, n, c.heads, c.head_dim, s.qkv, qkv, s.head_gates);
    if (l.q_norm != nullptr) k.norm_heads(s.qkv, qkv, l.q_norm, n, c.heads, c.head_dim, c.eps);
    if (l.k_norm != nullptr) k.norm_heads(key, qkv, l.k_norm, n, c.kv_heads, c.head_dim, c.eps);
    // Keys and values of the whole step are in the cache before any of its rows reads them.
    k.rope_store({s.tokens, n, ordinal, c.heads, c.rotated, s.qkv, key, value, qkv, s.angles, c.rope_pairs == RopePairs::halves}, caches.kv,
                 feed.tables);
    k.attention({s.tokens, n, ordinal, c.heads, s.qkv, qkv, s.attended, scale, c.sliding_window}, caches.kv, feed.tables);
    if (c.gated_attention) k.sigmoid_mul(s.attended, s.head_gates, static_cast<std::size_t>(n) * c.q_width());
    k.matmul(std::array{MatmulJob{l.o, s.x, c.width, true}}, s.attended, n, c.q_width());
    adapt(i, std::array{Adapted{LoraTarget::o, s.x, c.width}}, s.attended, c.q_width());
  };
  std::uint32_t attending = 0, recurrent = 0;
  for (std::uint32_t i = 0; i < c.layers; ++i) {
    const LlamaLayer& l = w.layers[i];
    k.rms_norm(s.x, l.attn_norm, s.h, n, c.width, c.eps);
    if (l.recurrent)
      delta_layer(k, c, l.delta, recurrent++, s.delta, caches.states, feed.rows, feed.n_rows, n, s.h, s.x);
    else
      attend(l, i, attending++);
    k.rms_norm(s.x, l.ffn_norm, s.h, n, c.width, c.eps);
    k.matmul(std::array{MatmulJob{l.gate, s.gate, c.ffn}, MatmulJob{l.up, s.up, c.ffn}}, s.h, n, c.width);
    adapt(i, std::array{Adapted{LoraTarget::gate, s.gate, c.ffn}, Adapted{LoraTarget::up, s.up, c.ffn}}, s.h, c.width);
    k.silu_mul(s.gate, s.up, static_cast<std::size_t>(n) * c.ffn);
    k.matmul(std::array{MatmulJob{l.down, s.x, c.width, true}}, s.gate, n, c.ffn);
    adapt(i, std::array{Adapted{LoraTarget::down, s.x, c.width}}, s.gate, c.ffn);
  }
  if (n_outputs == 0) return;
  k.gather_outputs(feed.rows, feed.n_rows, s.x, c.width, s.outputs);
  k.rms_norm(s.outputs, w.output_norm, s.outputs, n_outputs, c.width, c.eps);
  k.matmul(std::array{MatmulJob{w.output, s.logits, c.vocab}}, s.outputs, n_outputs, c.width);
}

}  // namespace troupe::device
