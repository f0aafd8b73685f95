#include "kernels/host/rows.h"

namespace troupe::kernels {

namespace {

struct Traits {
  const char* name;
  std::size_t block, block_bytes;
  bool codes, signed_codes, min;
  std::size_t scale_block;
  UnpackF32 (*to_f32)(Target);
  UnpackCodes (*to_codes)(Target);
};

// In the order of Format.
constexpr Traits kTraits[] = {
    {"F32", 1, 4, false, false, false, 0, &unpack_f32_f32, nullptr},
    {"F16", 1, 2, false, false, false, 0, &unpack_f32_f16, nullptr},
    {"BF16", 1, 2, false, false, false, 0, &unpack_f32_bf16, nullptr},
    {"Q8_0", 32, 34, true, true, false, 32, &unpack_f32_q8_0, &unpack_codes_q8_0},
    {"Q4_0", 32, 18, true, false, true, 32, &unpack_f32_q4_0, &unpack_codes_q4_0},
    {"Q4_1", 32, 20, true, false, true, 32, &unpack_f32_q4_1, &unpack_codes_q4_1},
    {"Q4_K", 256, 144, true, false, true, 32, &unpack_f32_q4_k, &unpack_codes_q4_k},
    {"Q6_K", 256, 210, true, true, false, 16, &unpack_f32_q6_k, &unpack_codes_q6_k},
};
static_assert(sizeof(kTraits) / sizeof(kTraits[0]) == static_cast<std::size_t>(Format::q6_k) + 1);

const Traits& traits(Format format) { return kTraits[static_cast<std::size_t>(format)]; }

}  // namespace

const char* name(Format format) { return traits(format).name; }
std::size_t block_elements(Format format) { return traits(format).block; }
std::size_t row_bytes(Format format, std::size_t cols) { return cols / traits(format).block * traits(format).block_bytes; }

bool has_codes(Format format) { return traits(format).codes; }
bool signed_codes(Format format) { return traits(format).signed_codes; }
bool has_min(Format format) { return traits(format).min; }
std::size_t scale_block(Format format) { return traits(format).scale_block; }

UnpackF32 unpack_f32(Format format, Target target) { return traits(format).to_f32(target); }
UnpackCodes unpack_codes(Format format, Target target) { return has_codes(format) ? traits(format).to_codes(target) : nullptr; }

}  // namespace troupe::kernels
