#include "kernels/host/rows.h"

namespace troupe::kernels {

const char* name(Format format) {
  switch (format) {
    case Format::f32:
      return "F32";
    case Format::q8_0:
      return "Q8_0";
    case Format::q4_1:
      return "Q4_1";
  }
  return "?";
}

std::size_t row_bytes(Format format, std::size_t cols) {
  switch (format) {
    case Format::f32:
      return cols * 4;
    case Format::q8_0:
      return cols / 32 * 34;
    case Format::q4_1:
      return cols / 32 * 20;
  }
  return 0;
}

bool has_codes(Format format) { return format != Format::f32; }
bool signed_codes(Format format) { return format == Format::q8_0; }
bool has_min(Format format) { return format == Format::q4_1; }

UnpackF32 unpack_f32(Format format, Target target) {
  switch (format) {
    case Format::f32:
      return unpack_f32_f32(target);
    case Format::q8_0:
      return unpack_f32_q8_0(target);
    case Format::q4_1:
      return unpack_f32_q4_1(target);
  }
  return nullptr;
}

UnpackCodes unpack_codes(Format format, Target target) {
  switch (format) {
    case Format::f32:
      return nullptr;
    case Format::q8_0:
      return unpack_codes_q8_0(target);
    case Format::q4_1:
      return unpack_codes_q4_1(target);
  }
  return nullptr;
}

}  // namespace troupe::kernels
