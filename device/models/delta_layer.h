// A recurrent layer of a hybrid model, in place of attention: the gated delta rule behind a short causal convolution (Qwen3.5;
// transformers, modeling_qwen3_5.py, Qwen3_5GatedDeltaNet). Written over the interface of kernels.
//
// Everywhere in its recurrent form, position by position, never in chunks: the two are equal in mathematics and not in bits,
// and this one gives a position the same bits however the prompt is cut, prefilled or decoded (R1).
#pragma once

#include <cstdint>

#include "device/models/model_config.h"
#include "device/models/weights.h"
#include "kernels/kernels.h"
#include "messages/error.h"

namespace troupe::device {

struct DeltaLayer {
  kernels::Weight qkv, z, a, b, out;
  const float* conv = nullptr;     // [taps][channels]
  const float* rate = nullptr;     // [v_heads]: exp(A_log)
  const float* dt_bias = nullptr;  // [v_heads]
  const float* norm = nullptr;     // [v_dim]: of each head's output
  // Gains that make an RMS norm of [k_dim] the L2 norm of q and of k; q's has the scale 1 / sqrt(k_dim) in it.
  const float *q_gain = nullptr, *k_gain = nullptr;
};

// The weights of layer `layer`. Errors as matrix() and vector().
Result<DeltaLayer> load_delta_layer(const TensorSource& source, const ModelConfig& config, std::uint32_t layer, OwnedFloats& owned);

// The versions' shape, without their memory.
kernels::RecurrentStates delta_states(const ModelConfig& config, std::uint32_t n_versions);

// Device memory that a recurrent layer works in; n = tokens of the largest step.
struct DeltaScratch {
  float* input = nullptr;  // [n][channels]
  float* mixed = nullptr;  // [n][channels]
  float* z = nullptr;      // [n][value_width]
  float* out = nullptr;    // [n][value_width]
  float* a = nullptr;      // [n][v_heads]
  float* b = nullptr;      // [n][v_heads]
};

// x[t] += what the layer makes of h[t], both [n_tokens][width]; `rows` says which states are read and written. `ordinal`: the
// layer's place among the recurrent ones.
void delta_layer(kernels::Kernels& k, const ModelConfig& config, const DeltaLayer& layer, std::uint32_t ordinal, const DeltaScratch& scratch,
                 const kernels::RecurrentStates& states, const kernels::StepRow* rows, std::uint32_t n_rows, std::uint32_t n_tokens,
                 const float* h, float* x);

}  // namespace troupe::device
