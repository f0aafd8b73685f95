// A cuBLASLt without a GPU, as a shared library that tests open where the real one would be: the functions that kernels/cuda/cublaslt.cc
// uses, with the meaning that NVIDIA's documentation gives them (column-major matrices, leading dimensions, transposes, BF16 in, F32
// out), computed from the definition on the host. Its sums descend over K, so its bits are not our kernels'.
//
// It is stricter than NVIDIA's: an algorithm that its heuristic did not name for this very product, pointers less aligned than was said,
// a workspace too small or not aligned, and handles that are not alive are kept as a report.
//
// What is here is looked up by dlsym, as the functions of cuBLASLt are.
#pragma once

#include <cstdint>

extern "C" {

// How a product gets onto a stream: `run(context)` on the stream's thread, as often as it is replayed, then `release(context)`. None
// (the default): it runs in the call.
typedef void (*FakeCublasLtEnqueue)(void* stream, void (*run)(void* context), void (*release)(void* context), void* context);
void fake_cublaslt_use(FakeCublasLtEnqueue enqueue);

// The nth (from 1) call of cublasLtMatmul from now on answers `status`; 0: none does.
void fake_cublaslt_fail(std::uint64_t nth, int status);

// What was done wrong first since the last call; null: nothing. Then how many objects are alive, and how many products were made.
const char* fake_cublaslt_report();
std::uint64_t fake_cublaslt_alive();
std::uint64_t fake_cublaslt_products();
}
