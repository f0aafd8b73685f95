// Helpers of the tests of kernels/cuda: where kernels run, seeds, BF16 by hand, and pieces of a step. What a kernel is given
// lies in vectors, which both machines reach (machine.h): never on the stack.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/cuda/families.h"
#include "tests/kernels/cuda/machine.h"
#include "tests/kernels/host/kernel_testing.h"

namespace troupe::kernels {

constexpr std::uint64_t kSeeds[] = {1, 2, 3};

// Nearest BF16, ties to even: written from the definition, in double (8 significant bits; the tests use no subnormals).
inline double rounded_bf16(double x) {
  if (x == 0.0 || !std::isfinite(x)) return x;
  int e = 0;
  const double m = std::frexp(x, &e);
  return std::ldexp(std::nearbyint(std::ldexp(m, 8)), e - 8);
}

// 2^-8 is the distance between neighbours of 1 below it: rounding to BF16 moves a number by at most 2^-9 of it. F32: 2^-24.
constexpr double kBf16Unit = 0x1p-9, kF32Unit = 0x1p-24;

template <class T>
std::vector<T> piece_of(const std::vector<T>& v, std::size_t begin, std::size_t end) {
  return {v.begin() + static_cast<std::ptrdiff_t>(begin), v.begin() + static_cast<std::ptrdiff_t>(end)};
}

}  // namespace troupe::kernels
