#include "kernels/host/delta_rule.h"

#include <algorithm>

#include "kernels/host/simd.h"
#include "kernels/sampling_math.h"

namespace troupe::kernels {

namespace {

static_assert(RecurrentStates::kStrip == 16, "a strip is one vector wide");

// Whole vectors but for the last.
TROUPE_INLINE F32x16 load_up_to(const float* p, std::size_t n) { return n == 16 ? load16(p) : load_some(p, n); }
TROUPE_INLINE void store_up_to(float* p, F32x16 v, std::size_t n) {
  if (n == 16)
    store16(p, v);
  else
    std::memcpy(p, &v, n * sizeof(float));
}

TROUPE_INLINE void conv(const RecurrentArgs& a, const RecurrentStates& s, std::uint32_t r, std::size_t first, std::uint32_t begin,
                        std::uint32_t end) {
  const StepRow& row = a.rows[r];
  const std::size_t channels = s.channels(), taps = s.taps, n = row.n_tokens;
  const float* before = row.state_in == kNone ? nullptr : s.at(row.state_in, a.layer);
  float* after = s.at(row.state_out, a.layer);
  for (std::size_t c = begin; c < end; c += 16) {
    const std::size_t width = std::min<std::size_t>(16, end - c);
    for (std::size_t t = 0; t < n; ++t) {
      F32x16 sum{};
      for (std::size_t j = 0; j < taps; ++j) {
        // The input at position t - (taps - 1) + j of the row; before the row it is the state's, or 0.
        F32x16 x{};
        if (t + j >= taps - 1) {
          x = load_up_to(a.input + (first + t + j - (taps - 1)) * channels + c, width);
        } else if (before != nullptr) {
          x = load_up_to(before + (t + j) * channels + c, width);
        }
        sum += load_up_to(a.conv + j * channels + c, width) * x;
      }
      store_up_to(a.mixed + (first + t) * channels + c, sum / (1.0f + exp16(-sum)), width);
    }
    for (std::size_t j = 0; j + 1 < taps; ++j) {  // the inputs of the row's last taps - 1 positions, as far back as before it
      F32x16 x{};
      if (n + j >= taps - 1) {
        x = load_up_to(a.input + (first + n + j - (taps - 1)) * channels + c, width);
      } else if (before != nullptr) {
        x = load_up_to(before + (n + j) * channels + c, width);
      }
      store_up_to(after + j * channels + c, x, width);
    }
  }
}

TROUPE_INLINE void rule(const RecurrentArgs& a, const RecurrentStates& s, std::uint32_t r, std::size_t first, std::uint32_t head,
                        std::uint32_t strip) {
  const StepRow& row = a.rows[r];
  const std::size_t channels = s.channels(), dim = s.k_dim;
  const std::size_t key_head = head / (s.v_heads / s.k_heads);
  const std::size_t column = std::size_t{strip} * RecurrentStates::kStrip;
  const std::size_t width = std::min<std::size_t>(RecurrentStates::kStrip, s.v_dim - column);
  const std::size_t at = s.conv_floats() + (std::size_t{head} * s.strips() + strip) * s.strip_floats();
  const float* from = row.state_in == kNone ? nullptr : s.at(row.state_in, a.layer) + at;
  float* const to = s.at(row.state_out, a.layer) + at;
  for (std::size_t t = first; t < first + row.n_tokens; ++t) {
    const float* q = a.mixed + t * channels + key_head * dim;
    const float* k = q + s.key_width();
    const float* v = a.mixed + t * channels + 2 * s.key_width() + head * s.v_dim + column;
    const F32x16 decay = splat16(a.decay[t * s.v_heads + head]);
    F32x16 held{};
    for (std::size_t i = 0; i < dim; ++i) {
      const F32x16 x = from == nullptr ? F32x16{} : load16(from + i * 16) * decay;
      store16(to + i * 16, x);
      held += x * k[i];
    }
    const F32x16 delta = (load_up_to(v, width) - held) * a.beta[t * s.v_heads + head];
    F32x16 out{};
    for (std::size_t i = 0; i < dim; ++i) {
      const F32x16 x = load16(to + i * 16) + delta * k[i];
      store16(to + i * 16, x);
      out += x * q[i];
    }
    store_up_to(a.out + t * s.value_width() + head * s.v_dim + column, out, width);
    from = to;
  }
}

TROUPE_INLINE void gated(float* x, const float* gate, std::size_t n) {
  std::size_t i = 0;
  for (; i + 16 <= n; i += 16) store16(x + i, load16(x + i) / (1.0f + exp16(-load16(gate + i))));
  if (i < n) store_up_to(x + i, load_up_to(x + i, n - i) / (1.0f + exp16(-load_up_to(gate + i, n - i))), n - i);
}

TROUPE_SIMD_TARGETS(conv,
                    (const RecurrentArgs& a, const RecurrentStates& s, std::uint32_t r, std::size_t first, std::uint32_t begin,
                     std::uint32_t end),
                    conv(a, s, r, first, begin, end))
TROUPE_SIMD_TARGETS(rule,
                    (const RecurrentArgs& a, const RecurrentStates& s, std::uint32_t r, std::size_t first, std::uint32_t head,
                     std::uint32_t strip),
                    rule(a, s, r, first, head, strip))
TROUPE_SIMD_TARGETS(gated, (float* x, const float* gate, std::size_t n), gated(x, gate, n))

}  // namespace

CausalConv causal_conv(Target target) { return conv_pick(target); }
DeltaRule delta_rule(Target target) { return rule_pick(target); }
SigmoidMul sigmoid_mul(Target target) { return gated_pick(target); }

void delta_gates(float* a, float* b, const float* rate, const float* dt_bias, std::uint32_t heads) {
  for (std::uint32_t h = 0; h < heads; ++h) {
    const float x = a[h] + dt_bias[h];
    a[h] = exp_float(-rate[h] * (x > 20.0f ? x : log_float(1.0f + exp_float(x))));
    b[h] = 1.0f / (1.0f + exp_float(-b[h]));
  }
}

}  // namespace troupe::kernels
