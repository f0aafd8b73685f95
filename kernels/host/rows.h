// Rows of weights as stored, unpacked for the dot products: to F32, or to 8-bit codes with a scale (and a minimum)
// per block of 32. Block layouts are ggml's: Q8_0 = {half d; int8 q[32]}, w = d q; Q4_1 = {half d, m; uint8 q[16]},
// element i in the low nibble of q[i], element i + 16 in the high nibble, w = d q + m. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/host/target.h"
#include "kernels/kernels.h"

namespace troupe::kernels {

inline std::size_t round_up(std::size_t n, std::size_t unit) { return (n + unit - 1) / unit * unit; }

// Rows that are unpacked together: one lane each.
inline constexpr std::size_t kBundle = 16;

// Up to 16 rows as codes, interleaved so that a lane is a row. Lanes past the last row repeat it.
struct CodesBundle {
  std::uint8_t* codes = nullptr;  // [cols / 32][8][16][4]: block, element / 4, row, element % 4; int8 if the format is signed
  float* scale = nullptr;         // [cols / 32][16]
  float* min = nullptr;           // [cols / 32][16]; unused if the format has none
};

bool has_codes(Format format);  // false: dot products on F32 only
bool signed_codes(Format format);
bool has_min(Format format);

using UnpackF32 = void (*)(const void* row, std::size_t cols, float* out);
// n_rows (1 to 16) rows, row_bytes(format, cols) apart.
using UnpackCodes = void (*)(const void* rows, std::size_t n_rows, std::size_t cols, const CodesBundle& out);
UnpackF32 unpack_f32(Format format, Target target);
UnpackCodes unpack_codes(Format format, Target target);  // nullptr if !has_codes

// One family per format, in rows_<format>.cc.
UnpackF32 unpack_f32_f32(Target target);
UnpackF32 unpack_f32_q8_0(Target target);
UnpackCodes unpack_codes_q8_0(Target target);
UnpackF32 unpack_f32_q4_1(Target target);
UnpackCodes unpack_codes_q4_1(Target target);

}  // namespace troupe::kernels
