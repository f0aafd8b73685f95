// RMSNorm of one row (Kernels::rms_norm). Pure; any thread.
#pragma once

#include <cstddef>

#include "kernels/host/target.h"

namespace troupe::kernels {

using RmsNorm = void (*)(const float* x, const float* gain, float* y, std::size_t width, float eps);
RmsNorm rms_norm(Target target);

}  // namespace troupe::kernels
