// Adapters of several ranks at one matrix, for the tests of the LoRA kernels of host and CUDA.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/kernels.h"
#include "tests/kernels/host/kernel_testing.h"

namespace troupe::kernels {

// Slot i has ranks[i]; slot 0 is the base model's and never named.
struct Adapters {
  std::uint32_t rows, cols;
  std::vector<std::vector<float>> a, b;
  std::vector<LoraWeight> slots;

  Adapters(const Adapters&) = delete;  // slots points into a and b
  Adapters& operator=(const Adapters&) = delete;
  Adapters(std::uint32_t rows, std::uint32_t cols, const std::vector<std::uint32_t>& ranks)
      : rows(rows), cols(cols), a(ranks.size()), b(ranks.size()) {
    slots.resize(ranks.size());
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      a[i] = random_floats(std::size_t{ranks[i]} * cols, 10 * i + 1);
      b[i] = random_floats(std::size_t{ranks[i]} * rows, 10 * i + 2);
      slots[i] = {a[i].data(), b[i].data(), ranks[i], 0.5f + static_cast<float>(i)};
    }
  }
};

// The slot that a token runs under; 0: the base model's.
inline std::uint32_t slot_of(const std::vector<LoraRun>& runs, std::uint32_t token) {
  for (const LoraRun& r : runs) {
    if (token >= r.first_token && token < r.first_token + r.n_tokens) return r.slot;
  }
  return 0;
}

}  // namespace troupe::kernels
