// Rows of weights as stored, unpacked for the dot products: to F32, or to 8-bit codes with a scale (and a minimum)
// per block of 32 (Q6_K: of 16). Pure functions; any thread. Block layouts are ggml's (half = binary16):
//   Q8_0 = {half d; int8 q[32]}: w = d q
//   Q4_0 = {half d; uint8 q[16]}: w = d (q - 8); element i in the low nibble of q[i], i + 16 in the high one
//   Q4_1 = {half d, m; uint8 q[16]}: w = d q + m; nibbles as Q4_0
//   Q4_K = {half d, dmin; uint8 s[12]; uint8 q[128]}, 256 elements in 8 blocks of 32: w = d scale[j] q - dmin min[j].
//          q[32 g + i] holds element i of block 2g (low nibble) and of block 2g + 1 (high). Scales and minima have 6
//          bits: for j < 4 s[j] & 63 and s[j + 4] & 63; else the low (high) nibble of s[j + 4] with the two top bits of
//          s[j - 4] (of s[j]) above it.
//   Q6_K = {uint8 low[128], high[64]; int8 scale[16]; half d}, 256 elements in 16 blocks of 16: w = d scale[e / 16]
//          (q - 32). Of each 128 elements from 128 n: element 32 k + i has its low 4 bits in low[64 n + 32 (k % 2) + i]
//          (low nibble for k < 2) and the two above in bits 2k, 2k + 1 of high[32 n + i].
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
  float* scale = nullptr;         // [cols / scale_block][16]
  float* min = nullptr;           // [cols / 32][16]; unused if the format has none
};

bool has_codes(Format format);  // false: dot products on F32 only
bool signed_codes(Format format);
bool has_min(Format format);
std::size_t scale_block(Format format);  // elements that share a scale: 16 or 32 (if it has codes)

using UnpackF32 = void (*)(const void* row, std::size_t cols, float* out);
// n_rows (1 to 16) rows, row_bytes(format, cols) apart.
using UnpackCodes = void (*)(const void* rows, std::size_t n_rows, std::size_t cols, const CodesBundle& out);
UnpackF32 unpack_f32(Format format, Target target);
UnpackCodes unpack_codes(Format format, Target target);  // nullptr if !has_codes

// One family per format, in rows_<format>.cc.
UnpackF32 unpack_f32_f32(Target target);
UnpackF32 unpack_f32_f16(Target target);
UnpackF32 unpack_f32_bf16(Target target);
UnpackF32 unpack_f32_q8_0(Target target);
UnpackCodes unpack_codes_q8_0(Target target);
UnpackF32 unpack_f32_q4_0(Target target);
UnpackCodes unpack_codes_q4_0(Target target);
UnpackF32 unpack_f32_q4_1(Target target);
UnpackCodes unpack_codes_q4_1(Target target);
UnpackF32 unpack_f32_q4_k(Target target);
UnpackCodes unpack_codes_q4_k(Target target);
UnpackF32 unpack_f32_q6_k(Target target);
UnpackCodes unpack_codes_q6_k(Target target);

}  // namespace troupe::kernels
