// Masked argmax of a row of logits (Kernels::argmax; DESIGN 5.2). Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/host/target.h"
#include "kernels/kernels.h"

namespace troupe::kernels {

// The lowest index of the largest logit that is no NaN; kNone if every one is NaN (or n is 0).
std::uint32_t argmax(const float* logits, std::size_t n, Target target);

// p = argmax; if p is a or b, the argmax with both excluded. kNone: nothing is left.
std::uint32_t masked_argmax(const float* logits, std::size_t n, std::uint32_t a, std::uint32_t b, Target target);

}  // namespace troupe::kernels
