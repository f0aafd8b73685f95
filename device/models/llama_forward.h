// The Llama forward pass, written once over the interface of kernels: RMSNorm, attention with RoPE over interleaved
// pairs (GGUF stores q and k rows permuted for that) and grouped KV heads, SiLU-gated feed-forward, residual sums.
#pragma once

#include <cstdint>
#include <vector>

#include "device/models/llama_config.h"
#include "kernels/kernels.h"
#include "messages/error.h"

namespace troupe::device {

struct LlamaLayer {
  const float* attn_norm = nullptr;
  kernels::Weight q, k, v, o;
  const float* ffn_norm = nullptr;
  kernels::Weight gate, up, down;
};

struct LlamaWeights {
  kernels::Weight embedding;
  std::vector<LlamaLayer> layers;
  const float* output_norm = nullptr;
  kernels::Weight output;  // the embedding again, if tied
};

// Views into the file, shapes checked. Errors as matrix() and vector().
Result<LlamaWeights> load_llama_weights(const GgufFile& file, const LlamaConfig& config);

// Device memory that a step works in; n = tokens of the largest step, r = its rows.
struct LlamaScratch {
  kernels::StepToken* tokens = nullptr;  // [n]
  float* angles = nullptr;               // [n][rotated]
  float* x = nullptr;                    // [n][width]: the residual
  float* h = nullptr;                    // [n][width]
  float* qkv = nullptr;                  // [n][q_width + 2 kv_width]
  float* attended = nullptr;             // [n][q_width]
  float* gate = nullptr;                 // [n][ffn]
  float* up = nullptr;                   // [n][ffn]
  float* outputs = nullptr;              // [r][width]
  float* logits = nullptr;               // [r][vocab]
};

// One step. feed.tokens is scratch.tokens; n_tokens over all rows; n_outputs = rows with an output.
void llama_forward(kernels::Kernels& k, const LlamaConfig& config, const LlamaWeights& weights, const double* inv_freq,
                   const LlamaScratch& scratch, const kernels::KvCache& kv, const kernels::FeedArgs& feed, std::uint32_t n_tokens,
                   std::uint32_t n_outputs);

}  // namespace troupe::device
