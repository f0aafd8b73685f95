// One recurrent layer's parts on the host (Kernels::causal_conv, delta_rule, delta_gates, sigmoid_mul). Each is split into
// pieces that share nothing, and in a piece every sum runs in the order that kernels.h names: so the bits of a position do
// not depend on how its row was cut, or on what else is in the step (R1).
//
// Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/host/target.h"
#include "kernels/kernels.h"

namespace troupe::kernels {

// Row `r`, whose first token is `first_token`, channels [begin, end).
using CausalConv = void (*)(const RecurrentArgs& args, const RecurrentStates& states, std::uint32_t r, std::size_t first_token,
                            std::uint32_t begin, std::uint32_t end);
CausalConv causal_conv(Target target);

// The same row, one strip of a value head's columns.
using DeltaRule = void (*)(const RecurrentArgs& args, const RecurrentStates& states, std::uint32_t r, std::size_t first_token,
                           std::uint32_t head, std::uint32_t strip);
DeltaRule delta_rule(Target target);

// One token's.
void delta_gates(float* a, float* b, const float* rate, const float* dt_bias, std::uint32_t heads);

using SigmoidMul = void (*)(float* x, const float* gate, std::size_t n);
SigmoidMul sigmoid_mul(Target target);

}  // namespace troupe::kernels
