#include <cstring>

#include "kernels/host/rows.h"

namespace troupe::kernels {

UnpackF32 unpack_f32_f32(Target) {
  return [](const void* row, std::size_t cols, float* out) { std::memcpy(out, row, cols * sizeof(float)); };
}

}  // namespace troupe::kernels
