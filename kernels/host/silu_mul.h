// gate[i] = (gate[i] / (1 + exp(-gate[i]))) * up[i] (Kernels::silu_mul). Pure; any thread.
#pragma once

#include <cstddef>

#include "kernels/host/target.h"

namespace troupe::kernels {

using SiluMul = void (*)(float* gate, const float* up, std::size_t n);
SiluMul silu_mul(Target target);

}  // namespace troupe::kernels
