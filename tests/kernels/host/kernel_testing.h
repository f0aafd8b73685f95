// Helpers of the kernel tests: random data, weights stored in each format with the values they stand for, and the
// targets of this CPU.
#pragma once

#include <gtest/gtest.h>

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

// Random codes and scales: not the nearest to anything, but every code occurs.
inline StoredMatrix random_matrix(Format format, std::uint32_t rows, std::uint32_t cols, std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  const auto half = [&](float low, float high) { return float_to_half(std::uniform_real_distribution<float>(low, high)(rng)); };
  StoredMatrix m;
  const auto put = [&](const void* p, std::size_t n) {
    m.bytes.insert(m.bytes.end(), static_cast<const std::uint8_t*>(p), static_cast<const std::uint8_t*>(p) + n);
  };
  m.values.resize(std::size_t{rows} * cols);
  for (std::size_t b = 0; b < m.values.size() / 32; ++b) {
    double* v = &m.values[b * 32];
    if (format == Format::f32) {
      for (int i = 0; i < 32; ++i) {
        const float x = std::normal_distribution<float>()(rng);
        put(&x, 4);
        v[i] = x;
      }
    } else if (format == Format::q8_0) {
      const std::uint16_t d = half(-0.02f, 0.02f);
      put(&d, 2);
      for (int i = 0; i < 32; ++i) {
        const auto q = static_cast<std::int8_t>(rng());  // -128 too
        put(&q, 1);
        v[i] = static_cast<double>(half_to_float(d)) * q;
      }
    } else {
      const std::uint16_t d = half(0.0f, 0.2f), min = half(-1.5f, 0.5f);
      put(&d, 2);
      put(&min, 2);
      for (int i = 0; i < 16; ++i) {
        const auto q = static_cast<std::uint8_t>(rng());
        put(&q, 1);
        v[i] = static_cast<double>(half_to_float(d)) * (q & 15) + half_to_float(min);
        v[i + 16] = static_cast<double>(half_to_float(d)) * (q >> 4) + half_to_float(min);
      }
    }
  }
  m.weight = {m.bytes.data(), format, rows, cols};
  return m;
}

}  // namespace troupe::kernels
