// Marks functions that both the host's compiler and nvcc compile, and that must give the same bits in both: only
// operations that IEEE 754 rounds correctly, in a fixed order, never contracted (-ffp-contract=off, -fmad=false).
#pragma once

#ifdef __CUDACC__
#define TROUPE_HOST_DEVICE __host__ __device__
#else
#define TROUPE_HOST_DEVICE
#endif
