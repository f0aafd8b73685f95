#include "kernels/host/target.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace troupe::kernels {

const char* name(Target target) {
  switch (target) {
    case Target::portable:
      return "portable";
    case Target::avx2:
      return "avx2";
    case Target::avx512:
      return "avx512-vnni";
  }
  return "?";
}

#if defined(__x86_64__)
namespace {
// clang 14's __builtin_cpu_supports does not know f16c. The registers' state is avx2's affair.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
}  // namespace
#endif

bool supported(Target target) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  switch (target) {
    case Target::portable:
      return true;
    case Target::avx2:
      return __builtin_cpu_supports("avx2") && has_f16c();
    case Target::avx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni");
  }
  return false;
#else
  return target == Target::portable;
#endif
}

Target best_target() {
  if (supported(Target::avx512)) return Target::avx512;
  if (supported(Target::avx2)) return Target::avx2;
  return Target::portable;
}

}  // namespace troupe::kernels
