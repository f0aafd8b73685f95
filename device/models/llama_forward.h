// The forward pass of every family that ModelConfig describes, written once over the interface of kernels: RMSNorm,
// attention with RoPE and grouped KV heads, SiLU-gated feed-forward, residual sums; biases of q, k and v, norms of their
// heads, the pairs that RoPE turns, a sliding window, a gate on what was attended, an output matrix of its own, and layers that
// are recurrent in place of attention (delta_layer.h) are options.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/models/delta_layer.h"
#include "device/models/llama_adapters.h"
#include "device/models/model_config.h"
#include "device/models/weights.h"
#include "kernels/kernels.h"
#include "messages/error.h"

namespace troupe::device {

struct LlamaLayer {
  const float* attn_norm = nullptr;
  bool recurrent = false;  // delta is there, and q to k_norm are not
  DeltaLayer delta;
  kernels::Weight q, k, v, o;
  const float *q_bias = nullptr, *k_bias = nullptr, *v_bias = nullptr;  // of config.qkv_bias
  const float *q_norm = nullptr, *k_norm = nullptr;                     // [head_dim], of config.qk_norm
  const float* ffn_norm = nullptr;
  kernels::Weight gate, up, down;
};

struct LlamaWeights {
  kernels::Weight embedding;
  std::vector<LlamaLayer> layers;
  const float* output_norm = nullptr;
  kernels::Weight output;  // the embedding again, if tied
  OwnedFloats owned;
};

// Views into the source, shapes checked. Errors as matrix() and vector().
Result<LlamaWeights> load_llama_weights(const TensorSource& source, const ModelConfig& config);

// Device memory that a step works in; n = tokens of the largest step, r = its rows.
struct LlamaScratch {
  kernels::StepToken* tokens = nullptr;  // [n]
  float* angles = nullptr;               // [n][rotated]
  float* x = nullptr;                    // [n][width]: the residual
  float* h = nullptr;                    // [n][width]
  float* qkv = nullptr;                  // [n][q_width + 2 kv_width]
  float* attended = nullptr;             // [n][q_width]
  float* pairs = nullptr;                // [n][q_rows]: of gated attention
  float* head_gates = nullptr;           // [n][q_width]: likewise
  DeltaScratch delta;                    // of recurrent layers
  float* gate = nullptr;                 // [n][ffn]
  float* up = nullptr;                   // [n][ffn]
  float* outputs = nullptr;              // [r][width]
  float* logits = nullptr;               // [r][vocab]
};

// What sequences leave on the device from step to step.
struct LlamaCaches {
  kernels::KvCache kv;              // its layers are those with attention
  kernels::RecurrentStates states;  // its layers are the recurrent ones
};

// The adapters of a step: which tokens run under which slot. No runs: the base model alone.
struct LlamaLora {
  std::span<const kernels::LoraRun> runs;
  const LlamaAdapters* adapters = nullptr;
};

// One step. feed.tokens is scratch.tokens; n_tokens over all rows; n_outputs = rows with an output. feed_resolve, then layers.
void llama_forward(kernels::Kernels& k, const ModelConfig& config, const LlamaWeights& weights, const double* inv_freq,
                   const LlamaScratch& scratch, const LlamaCaches& caches, const kernels::FeedArgs& feed, const LlamaLora& lora,
                   std::uint32_t n_tokens, std::uint32_t n_outputs);

// The same behind feed_resolve. Of `feed` it reads rows, n_rows and tables alone: nothing that changes between steps of one size.
void llama_layers(kernels::Kernels& k, const ModelConfig& config, const LlamaWeights& weights, const double* inv_freq,
                  const LlamaScratch& scratch, const LlamaCaches& caches, const kernels::FeedArgs& feed, const LlamaLora& lora,
                  std::uint32_t n_tokens, std::uint32_t n_outputs);

}  // namespace troupe::device
