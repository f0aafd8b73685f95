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

// One row as codes. Beyond the row's end codes, scales and minima are 0, up to the sizes given (cols: a multiple of 32).
struct CodesRow {
  std::uint8_t* codes = nullptr;  // [round_up(cols, 64)]; int8 if the format is signed
  float* scale8 = nullptr;        // [round_up(cols, 64) / 4]: each block's scale eight times
  float* min = nullptr;           // [round_up(cols / 32, 16)]; unused if the format has none
};

bool has_codes(Format format);     // false: dot products on F32 only
bool signed_codes(Format format);
bool has_min(Format format);

using UnpackF32 = void (*)(const void* row, std::size_t cols, float* out);
using UnpackCodes = void (*)(const void* row, std::size_t cols, const CodesRow& out);
UnpackF32 unpack_f32(Format format, Target target);
UnpackCodes unpack_codes(Format format, Target target);  // nullptr if !has_codes

// One family per format, in rows_<format>.cc.
UnpackF32 unpack_f32_f32(Target target);
UnpackF32 unpack_f32_q8_0(Target target);
UnpackCodes unpack_codes_q8_0(Target target);
UnpackF32 unpack_f32_q4_1(Target target);
UnpackCodes unpack_codes_q4_1(Target target);

}  // namespace troupe::kernels
