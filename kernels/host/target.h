// Which instructions the host kernels use. Every target gives the same bits (the sums have one order and integer dot
// products are exact), so the choice is speed alone; `portable` is what the tests compare the others with.
#pragma once

namespace troupe::kernels {

enum class Target { portable, avx2, avx512 };  // avx512: F, BW, VL, DQ and VNNI; avx2: with F16C

const char* name(Target target);
bool supported(Target target);  // by this CPU
Target best_target();

}  // namespace troupe::kernels
