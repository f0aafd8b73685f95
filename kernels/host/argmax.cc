#include "kernels/host/argmax.h"

#include <algorithm>

#include "kernels/host/simd.h"

namespace troupe::kernels {

namespace {

TROUPE_INLINE void largest(const float* v, std::size_t n, std::uint32_t* out) {
  F32x16 top = splat16(-__builtin_inff());
  std::size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const F32x16 x = load16(v + i);
    top = x > top ? x : top;  // false for a NaN
  }
  float best = top[0];
  for (int j = 1; j < 16; ++j) best = top[j] > best ? top[j] : best;
  for (; i < n; ++i) best = v[i] > best ? v[i] : best;
  *out = kNone;
  for (i = 0; i < n; ++i) {
    if (v[i] == best) {
      *out = static_cast<std::uint32_t>(i);
      return;
    }
  }
}

TROUPE_SIMD_TARGETS(largest, (const float* v, std::size_t n, std::uint32_t* out), largest(v, n, out))

}  // namespace

std::uint32_t argmax(const float* logits, std::size_t n, Target target) {
  std::uint32_t out = kNone;
  largest_pick(target)(logits, n, &out);
  return out;
}

std::uint32_t masked_argmax(const float* logits, std::size_t n, std::uint32_t a, std::uint32_t b, Target target) {
  const std::uint32_t p = argmax(logits, n, target);
  if (p == kNone || (p != a && p != b)) return p;
  // The masked ids cut the row into at most three pieces.
  const std::size_t first = std::min<std::size_t>(std::min(a, b), n), second = std::min<std::size_t>(std::max(a, b), n);
  const std::size_t pieces[3][2] = {{0, first}, {first + 1, second}, {second + 1, n}};
  std::uint32_t best = kNone;
  for (const auto& [begin, end] : pieces) {
    if (begin >= end) continue;
    const std::uint32_t i = argmax(logits + begin, end - begin, target);
    if (i == kNone) continue;
    const std::uint32_t at = static_cast<std::uint32_t>(begin) + i;
    if (best == kNone || logits[at] > logits[best]) best = at;
  }
  return best;
}

}  // namespace troupe::kernels
