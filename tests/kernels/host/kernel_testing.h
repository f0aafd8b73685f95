// Helpers of the kernel tests: random data, weights stored in each format with the values they stand for, and the
// targets of this CPU.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/host/half.h"
#include "kernels/host/target.h"
#include "kernels/kernels.h"

namespace troupe::kernels {

inline std::vector<Target> targets() {
  std::vector<Target> out;
  for (Target t : {Target::portable, Target::avx2, Target::avx512}) {
    if (supported(t)) out.push_back(t);
  }
  return out;
}

inline std::vector<float> random_floats(std::size_t n, std::uint64_t seed, float scale = 1.0f) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> d(0.0f, scale);
  std::vector<float> v(n);
  for (float& x : v) x = d(rng);
  return v;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

struct StoredMatrix {
  std::vector<std::uint8_t> bytes;
  std::vector<double> values;  // what the bytes stand for, by the format's definition
  Weight weight;
};

// Random codes and scales: not the nearest to anything, but every code occurs. cols: a multiple of block_elements.
inline StoredMatrix random_matrix(Format format, std::uint32_t rows, std::uint32_t cols, std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  StoredMatrix m;
  m.values.resize(std::size_t{rows} * cols);
  const auto put = [&](const void* p, std::size_t n) {
    m.bytes.insert(m.bytes.end(), static_cast<const std::uint8_t*>(p), static_cast<const std::uint8_t*>(p) + n);
  };
  const auto put_half = [&](float low, float high) {
    const std::uint16_t h = float_to_half(std::uniform_real_distribution<float>(low, high)(rng));
    put(&h, 2);
    return static_cast<double>(half_to_float(h));
  };
  const auto put_bytes = [&](std::size_t n) {
    std::vector<std::uint8_t> bytes(n);
    for (auto& x : bytes) x = static_cast<std::uint8_t>(rng());
    put(bytes.data(), n);
    return bytes;
  };
  const auto one_block = [&](double* v) {
    switch (format) {
      case Format::f32: {
        const float x = std::normal_distribution<float>()(rng);
        put(&x, 4);
        *v = x;
        break;
      }
      case Format::f16:
        *v = put_half(-2.0f, 2.0f);
        break;
      case Format::bf16: {
        const float x = std::normal_distribution<float>()(rng);
        const auto upper = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16);
        put(&upper, 2);
        *v = std::bit_cast<float>(static_cast<std::uint32_t>(upper) << 16);
        break;
      }
      case Format::q8_0: {
        const double d = put_half(-0.02f, 0.02f);
        const auto q = put_bytes(32);  // -128 too
        for (int i = 0; i < 32; ++i) v[i] = d * static_cast<std::int8_t>(q[i]);
        break;
      }
      case Format::q4_0: {
        const double d = put_half(-0.2f, 0.2f);
        const auto q = put_bytes(16);
        for (int i = 0; i < 32; ++i) v[i] = d * ((i < 16 ? q[i] & 15 : q[i - 16] >> 4) - 8);
        break;
      }
      case Format::q4_1: {
        const double d = put_half(0.0f, 0.2f), least = put_half(-1.5f, 0.5f);
        const auto q = put_bytes(16);
        for (int i = 0; i < 32; ++i) v[i] = d * (i < 16 ? q[i] & 15 : q[i - 16] >> 4) + least;
        break;
      }
      case Format::q4_k: {
        const double d = put_half(0.0f, 0.003f), dmin = put_half(-0.01f, 0.02f);
        const auto s = put_bytes(12), q = put_bytes(128);
        for (int i = 0; i < 256; ++i) {
          const int j = i / 32, code = q[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15;
          const int scale = j < 4 ? s[j] % 64 : s[j + 4] % 16 + s[j - 4] / 64 * 16;
          const int least = j < 4 ? s[j + 4] % 64 : s[j + 4] / 16 + s[j] / 64 * 16;
          v[i] = d * scale * code - dmin * least;
        }
        break;
      }
      case Format::q6_k: {
        const auto low = put_bytes(128), high = put_bytes(64), scale = put_bytes(16);
        const double d = put_half(-0.0004f, 0.0004f);
        for (int i = 0; i < 256; ++i) {
          const int n = i / 128, k = i % 128 / 32, l = i % 32;
          const int code = (low[n * 64 + k % 2 * 32 + l] >> (k / 2 * 4) & 15) + (high[n * 32 + l] >> (2 * k) & 3) * 16 - 32;
          v[i] = d * static_cast<std::int8_t>(scale[i / 16]) * code;
        }
        break;
      }
    }
  };
  for (std::size_t i = 0; i < m.values.size(); i += block_elements(format)) one_block(&m.values[i]);
  m.weight = {m.bytes.data(), format, rows, cols};
  return m;
}

// Whether rows of that many columns can be stored.
inline bool fits(Format format, std::uint32_t cols) { return cols % block_elements(format) == 0; }

}  // namespace troupe::kernels
