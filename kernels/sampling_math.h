// The arithmetic of sampling, which host and device share, so that both choose the same token bit for bit: exp and log of
// our own in float (relative error below 4e-7 and 3e-7, checked over their whole range by the test), the order of
// candidates, and weights as integers, whose sums are the same in every order.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/host_device.h"

namespace troupe::kernels {

TROUPE_HOST_DEVICE inline std::uint32_t float_bits(float x) {
  std::uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}
TROUPE_HOST_DEVICE inline float float_from_bits(std::uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

// e^x. Below -87.33 (where the result is no normal number) 0, above 88.72 infinity, NaN for NaN.
// x = k ln 2 + r with |r| <= ln 2 / 2, and the Taylor series of e^r to r^7.
TROUPE_HOST_DEVICE inline float exp_float(float x) {
  if (!(x >= -87.33f)) return x != x ? x : 0.0f;
  if (x > 88.72f) return float_from_bits(0x7f800000u);
  const float t = x * 1.44269504f;
  const int k = static_cast<int>(t + (t < 0 ? -0.5f : 0.5f));
  const float n = static_cast<float>(k);
  // ln 2 in two parts: the first has 9 trailing zero bits, so that n times it is exact.
  const float hi = x - n * 0.693359375f;
  const float r = hi - n * -2.12194440e-4f;
  float p = 1.98412698e-4f;
  p = p * r + 1.38888889e-3f;
  p = p * r + 8.33333333e-3f;
  p = p * r + 4.16666667e-2f;
  p = p * r + 1.66666667e-1f;
  p = p * r + 0.5f;
  const float e = (p * (r * r) + r) + 1.0f;
  // 2^k in two factors: k reaches 128, and -126.
  const int half = k / 2;
  return e * float_from_bits(static_cast<std::uint32_t>(half + 127) << 23) *
         float_from_bits(static_cast<std::uint32_t>(k - half + 127) << 23);
}

// Natural logarithm. -infinity for 0, NaN below 0 and for NaN.
// x = m 2^e with m in [sqrt 1/2, sqrt 2), and log m = 2 artanh s, s = (m - 1) / (m + 1), as its series to s^9.
TROUPE_HOST_DEVICE inline float log_float(float x) {
  if (!(x > 0)) return x == 0 ? float_from_bits(0xff800000u) : float_from_bits(0x7fc00000u);
  if (x > 3.4028235e38f) return x;
  int e = 0;
  if (x < 1.17549435e-38f) {
    x *= 8388608.0f;  // 2^23: subnormal numbers
    e = -23;
  }
  std::uint32_t bits = float_bits(x);
  e += static_cast<int>(bits >> 23) - 127;
  bits = (bits & 0x007fffffu) | 0x3f800000u;
  if (bits >= 0x3fb504f3u) {  // sqrt 2
    bits -= 0x00800000u;
    ++e;
  }
  const float f = float_from_bits(bits) - 1.0f;
  const float s = f / (2.0f + f);
  const float z = s * s;
  float p = 2.22222222e-1f;
  p = p * z + 2.85714286e-1f;
  p = p * z + 4.00000000e-1f;
  p = p * z + 6.66666667e-1f;
  const float n = static_cast<float>(e);
  return n * 0.693359375f + ((s * (p * z) + n * -2.12194440e-4f) + 2.0f * s);
}

// Ascending keys are descending logits, ties in ascending order of id. -0 counts as 0. Not for NaN.
TROUPE_HOST_DEVICE inline std::uint64_t candidate_key(float logit, std::uint32_t id) {
  const std::uint32_t bits = float_bits(logit + 0.0f);
  const std::uint32_t ascending = bits ^ ((bits >> 31) != 0 ? 0xffffffffu : 0x80000000u);
  return static_cast<std::uint64_t>(~ascending) << 32 | id;
}
TROUPE_HOST_DEVICE inline std::uint32_t candidate_id(std::uint64_t key) { return static_cast<std::uint32_t>(key); }

// False for NaN and -infinity.
TROUPE_HOST_DEVICE inline bool is_candidate(float logit) { return logit > float_from_bits(0xff800000u); }

// e^((logit - max) / temperature), at most 1; 1 where the logit is the maximum, also an infinite one.
TROUPE_HOST_DEVICE inline float candidate_weight(float logit, float max, float temperature) {
  return logit == max ? 1.0f : exp_float((logit - max) / temperature);
}

// A weight in units of 2^-40, rounded down: 2^22 of them fit into 64 bits.
TROUPE_HOST_DEVICE inline std::uint64_t fixed_weight(float weight) { return static_cast<std::uint64_t>(weight * 0x1p40f); }
inline constexpr std::uint32_t kMaxVocab = 1u << 22;

// What the running sum of the best candidates must reach to be top_p of the sum; the best one alone always may. sum > 0.
TROUPE_HOST_DEVICE inline std::uint64_t enough_for_top_p(float top_p, std::uint64_t sum) {
  const auto part = static_cast<std::uint64_t>(static_cast<double>(top_p) * static_cast<double>(sum));
  return part < 1 ? 1 : part > sum ? sum : part;
}

// What the running sum must reach at the candidate that is drawn: more than draw / 2^24 of the sum. draw < 2^24, sum > 0.
TROUPE_HOST_DEVICE inline std::uint64_t drawn_weight(std::uint32_t draw, std::uint64_t sum) {
  return (sum >> 24) * draw + (((sum & 0xffffffu) * draw) >> 24) + 1;
}

// log of the sum of weights at temperature 1.
TROUPE_HOST_DEVICE inline float log_of_sum(std::uint64_t sum) { return log_float(static_cast<float>(static_cast<double>(sum) * 0x1p-40)); }

// Log-probability of a logit, given the largest one and log_of_sum.
TROUPE_HOST_DEVICE inline float log_probability(float logit, float max, float log_sum) {
  return (logit == max ? 0.0f : logit - max) - log_sum;
}

// Penalties as in vLLM, for an id that prompt or output holds; `outputs`: how often the output does.
TROUPE_HOST_DEVICE inline float penalized(float logit, std::uint32_t outputs, float repetition, float presence, float frequency) {
  if (repetition != 1.0f) logit = logit > 0 ? logit / repetition : logit * repetition;
  if (outputs == 0) return logit;
  logit -= static_cast<float>(outputs) * frequency;
  return logit - presence;
}

}  // namespace troupe::kernels
