#include "kernels/host/rows.h"
#include "kernels/host/simd.h"

namespace troupe::kernels {

namespace {

typedef std::uint16_t U16x16 __attribute__((vector_size(32)));

TROUPE_INLINE U32x16 load_words(const std::uint8_t* p) {
  U16x16 h;
  std::memcpy(&h, p, sizeof h);
  return __builtin_convertvector(h, U32x16);
}

TROUPE_INLINE void halves(const void* row, std::size_t cols, float* out) {
  const auto* p = static_cast<const std::uint8_t*>(row);
  for (std::size_t i = 0; i < cols; i += 16) store16(out + i, half16(load_words(p + 2 * i)));
}

// The upper half of an F32.
TROUPE_INLINE void brains(const void* row, std::size_t cols, float* out) {
  const auto* p = static_cast<const std::uint8_t*>(row);
  for (std::size_t i = 0; i < cols; i += 16) store16(out + i, floats16((I32x16)(load_words(p + 2 * i) << 16)));
}

TROUPE_SIMD_TARGETS(f32_from_f16, (const void* row, std::size_t cols, float* out), halves(row, cols, out))
TROUPE_SIMD_TARGETS(f32_from_bf16, (const void* row, std::size_t cols, float* out), brains(row, cols, out))

}  // namespace

UnpackF32 unpack_f32_f16(Target target) { return f32_from_f16_pick(target); }
UnpackF32 unpack_f32_bf16(Target target) { return f32_from_bf16_pick(target); }

}  // namespace troupe::kernels
