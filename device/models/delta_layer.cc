#include "device/models/delta_layer.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <memory>
#include <utility>

#include "kernels/sampling_math.h"

namespace troupe::device {

namespace {

constexpr double kL2Eps = 1e-6;  // transformers, l2norm

const float* constant(double value, std::uint32_t n, OwnedFloats& owned) {
  auto floats = std::make_unique<float[]>(n);
  std::fill_n(floats.get(), n, static_cast<float>(value));
  return owned.emplace_back(std::move(floats)).get();
}

}  // namespace

Result<DeltaLayer> load_delta_layer(const TensorSource& source, const ModelConfig& c, std::uint32_t layer, OwnedFloats& owned) {
  const DeltaShape& d = c.delta;
  const auto name = [layer](const char* part) { return fmt::format("blk.{}.{}", layer, part); };
  DeltaLayer l;
  TROUPE_TRY(l.qkv, matrix(source, name("attn_qkv.weight"), d.channels(), c.width));
  TROUPE_TRY(l.z, matrix(source, name("attn_gate.weight"), d.value_width(), c.width));
  TROUPE_TRY(l.a, matrix(source, name("ssm_alpha.weight"), d.v_heads, c.width));
  TROUPE_TRY(l.b, matrix(source, name("ssm_beta.weight"), d.v_heads, c.width));
  TROUPE_TRY(l.out, matrix(source, name("ssm_out.weight"), c.width, d.value_width()));
  TROUPE_TRY(l.dt_bias, vector(source, name("ssm_dt.bias"), d.v_heads, owned));
  TROUPE_TRY(l.norm, vector(source, name("ssm_norm.weight"), d.v_dim, owned));
  TROUPE_TRY(float* rate, floats(source, name("ssm_a_log"), {d.v_heads}, owned));
  for (std::uint32_t h = 0; h < d.v_heads; ++h) rate[h] = kernels::exp_float(rate[h]);
  l.rate = rate;
  OwnedFloats stored;
  TROUPE_TRY(const float* by_channel, floats(source, name("ssm_conv1d.weight"), {d.taps, 1, d.channels()}, stored));
  auto conv = std::make_unique<float[]>(std::size_t{d.taps} * d.channels());
  for (std::size_t channel = 0; channel < d.channels(); ++channel) {
    for (std::size_t tap = 0; tap < d.taps; ++tap) conv[tap * d.channels() + channel] = by_channel[channel * d.taps + tap];
  }
  l.conv = owned.emplace_back(std::move(conv)).get();
  l.k_gain = constant(1.0 / std::sqrt(d.k_dim), d.k_dim, owned);
  l.q_gain = constant(1.0 / d.k_dim, d.k_dim, owned);
  return l;
}

kernels::RecurrentStates delta_states(const ModelConfig& c, std::uint32_t n_versions) {
  const DeltaShape& d = c.delta;
  return {nullptr, n_versions, c.recurrent_layers(), d.k_heads, d.v_heads, d.k_dim, d.v_dim, d.taps};
}

void delta_layer(kernels::Kernels& k, const ModelConfig& c, const DeltaLayer& l, std::uint32_t ordinal, const DeltaScratch& s,
                 const kernels::RecurrentStates& states, const kernels::StepRow* rows, std::uint32_t n_rows, std::uint32_t n,
                 const float* h, float* x) {
  using kernels::MatmulJob;
  const DeltaShape& d = c.delta;
  const std::size_t channels = d.channels(), value_width = d.value_width();
  k.matmul(std::array{MatmulJob{l.qkv, s.input, channels}, MatmulJob{l.z, s.z, value_width}, MatmulJob{l.a, s.a, d.v_heads},
                      MatmulJob{l.b, s.b, d.v_heads}},
           h, n, c.width);
  const kernels::RecurrentArgs args{rows, n_rows, n, ordinal, l.conv, s.input, s.mixed, s.a, s.b, s.out};
  k.causal_conv(args, states);
  // x / sqrt(sum x^2 + eps) is the RMS norm with eps / k_dim, over sqrt(k_dim).
  const auto eps = static_cast<float>(kL2Eps / d.k_dim);
  k.norm_heads(s.mixed, channels, l.q_gain, n, d.k_heads, d.k_dim, eps);
  k.norm_heads(s.mixed + std::size_t{d.k_heads} * d.k_dim, channels, l.k_gain, n, d.k_heads, d.k_dim, eps);
  k.delta_gates(s.a, s.b, l.rate, l.dt_bias, n, d.v_heads);
  k.delta_rule(args, states);
  k.norm_heads(s.out, value_width, l.norm, n, d.v_heads, d.v_dim, c.eps);
  k.silu_mul(s.z, s.out, static_cast<std::size_t>(n) * value_width);
  k.matmul(std::array{MatmulJob{l.out, x, c.width, true}}, s.z, n, d.value_width());
}

}  // namespace troupe::device
