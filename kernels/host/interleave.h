// Sixteen rows of bytes turned into lanes: what the unpackers of rows_*.cc share. Inlined into functions that carry a
// target attribute (simd.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/host/rows.h"
#include "kernels/host/simd.h"

namespace troupe::kernels {

typedef std::uint32_t U32x4 __attribute__((vector_size(16)));
typedef std::uint32_t U32x8 __attribute__((vector_size(32)));

TROUPE_INLINE U32x4 load4(const std::uint8_t* p) {
  U32x4 v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
TROUPE_INLINE U32x16 join(U32x4 a, U32x4 b, U32x4 c, U32x4 d) {
  const U32x8 ab = __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7), cd = __builtin_shufflevector(c, d, 0, 1, 2, 3, 4, 5, 6, 7);
  return __builtin_shufflevector(ab, cd, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

// Where the rows of a bundle lie. A full one has them a fixed stride apart; a short one repeats its last row.
struct FullBundle {
  const std::uint8_t* base;
  std::size_t stride;
  TROUPE_INLINE const std::uint8_t* row(std::size_t r) const { return base + r * stride; }
};
struct ShortBundle {
  const std::uint8_t* base;
  std::size_t stride, n_rows;
  TROUPE_INLINE const std::uint8_t* row(std::size_t r) const { return base + (r < n_rows ? r : n_rows - 1) * stride; }
};

// Asks for the bytes that lie `ahead` further on: bundles follow each other in memory, and rows are read crosswise,
// which the CPU's own prefetching does not see through.
TROUPE_INLINE void prefetch_block(const std::uint8_t* base, std::size_t block, std::size_t block_bytes, std::size_t ahead) {
  const std::uint8_t* p = base + ahead + block * kBundle * block_bytes;
  for (std::size_t i = 0; i < kBundle * block_bytes; i += 64) __builtin_prefetch(p + i);
}

// Four words (16 bytes) at `at` of each row; out[k] = word k of rows 0 to 15.
struct Words {
  U32x16 w[4];
};
template <class B>
TROUPE_INLINE Words words(const B& b, std::size_t at) {
  U32x16 v[4];  // v[i] = the four words of rows i, i + 4, i + 8, i + 12
  for (int i = 0; i < 4; ++i)
    v[i] = join(load4(b.row(i) + at), load4(b.row(i + 4) + at), load4(b.row(i + 8) + at), load4(b.row(i + 12) + at));
    // Within each group of four lanes: transpose v[0..3].
#define TROUPE_LOW(x, y) __builtin_shufflevector(x, y, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29)
#define TROUPE_HIGH(x, y) __builtin_shufflevector(x, y, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31)
  const U32x16 a = TROUPE_LOW(v[0], v[1]), c = TROUPE_HIGH(v[0], v[1]), d = TROUPE_LOW(v[2], v[3]), e = TROUPE_HIGH(v[2], v[3]);
#undef TROUPE_LOW
#undef TROUPE_HIGH
#define TROUPE_LOW(x, y) __builtin_shufflevector(x, y, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29)
#define TROUPE_HIGH(x, y) __builtin_shufflevector(x, y, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31)
  return {{TROUPE_LOW(a, d), TROUPE_HIGH(a, d), TROUPE_LOW(c, e), TROUPE_HIGH(c, e)}};
#undef TROUPE_LOW
#undef TROUPE_HIGH
}

// One word (4 bytes) at `at` of each row.
template <class B>
TROUPE_INLINE U32x16 word(const B& b, std::size_t at) {
  std::uint32_t w[kBundle];
  for (std::size_t r = 0; r < kBundle; ++r) std::memcpy(&w[r], b.row(r) + at, 4);
  return U32x16{w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10], w[11], w[12], w[13], w[14], w[15]};
}
// Two bytes at `at` of each row, in the low half of each lane.
template <class B>
TROUPE_INLINE U32x16 half_word(const B& b, std::size_t at) {
  std::uint16_t w[kBundle];
  for (std::size_t r = 0; r < kBundle; ++r) std::memcpy(&w[r], b.row(r) + at, 2);
  return U32x16{w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10], w[11], w[12], w[13], w[14], w[15]};
}

TROUPE_INLINE void store_words(std::uint8_t* p, U32x16 v) { std::memcpy(p, &v, sizeof v); }

}  // namespace troupe::kernels

// unpack_f32_NAME and unpack_codes_NAME (rows.h) of the format NAME, by the file's own to_f32(row, cols, out) and
// interleave(bundle, cols, out).
#define TROUPE_UNPACKERS(name)                                                                                                      \
  namespace {                                                                                                                       \
  TROUPE_INLINE void to_codes(const void* rows, std::size_t n_rows, std::size_t cols, const CodesBundle& out) {                     \
    const auto* base = static_cast<const std::uint8_t*>(rows);                                                                      \
    const std::size_t stride = row_bytes(Format::name, cols);                                                                       \
    n_rows == kBundle ? interleave(FullBundle{base, stride}, cols, out) : interleave(ShortBundle{base, stride, n_rows}, cols, out); \
  }                                                                                                                                 \
  TROUPE_SIMD_TARGETS(f32_from_##name, (const void* row, std::size_t cols, float* out), to_f32(row, cols, out))                     \
  TROUPE_SIMD_TARGETS(codes_from_##name, (const void* rows, std::size_t n_rows, std::size_t cols, const CodesBundle& out),          \
                      to_codes(rows, n_rows, cols, out))                                                                            \
  }                                                                                                                                 \
  UnpackF32 unpack_f32_##name(Target target) { return f32_from_##name##_pick(target); }                                             \
  UnpackCodes unpack_codes_##name(Target target) { return codes_from_##name##_pick(target); }
