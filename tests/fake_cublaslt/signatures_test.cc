// What we declare of cuBLASLt's C interface (kernels/cuda/cublaslt_api.h) against NVIDIA's header, where a toolkit has it.
#include <gtest/gtest.h>

#include "kernels/cuda/cublaslt_api.h"

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>

#include <type_traits>

namespace {

namespace ours = troupe::kernels::cublaslt_api;

static_assert(ours::kR32F == CUDA_R_32F && ours::kR16BF == CUDA_R_16BF && ours::kCompute32F == CUBLAS_COMPUTE_32F);
static_assert(ours::kTransposed == CUBLAS_OP_T && sizeof ours::kTransposed == sizeof(cublasOperation_t));
static_assert(ours::kDescTransA == CUBLASLT_MATMUL_DESC_TRANSA);
static_assert(ours::kPreferWorkspaceBytes == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
static_assert(ours::kPreferAlignmentOfA == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
static_assert(ours::kPreferAlignmentOfA + 1 == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
static_assert(ours::kPreferAlignmentOfA + 2 == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
static_assert(ours::kPreferAlignmentOfA + 3 == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);

using Result = cublasLtMatmulHeuristicResult_t;
static_assert(sizeof(ours::Algorithm) == sizeof(cublasLtMatmulAlgo_t) && sizeof(ours::Heuristic) == sizeof(Result));
static_assert(offsetof(ours::Heuristic, workspace) == offsetof(Result, workspaceSize));
static_assert(offsetof(ours::Heuristic, state) == offsetof(Result, state));

// Both are passed in the same register or place of the stack.
template <class A, class B>
constexpr bool kSamePlace =
    sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B>&& std::is_floating_point_v<A> == std::is_floating_point_v<B>;
template <class A, class B>
constexpr bool kSameCall = false;
template <class R, class... A, class S, class... B>
constexpr bool kSameCall<R (*)(A...), S (*)(B...)> = [] {
  if constexpr (sizeof...(A) == sizeof...(B)) {
    return kSamePlace<R, S> && (kSamePlace<A, B> && ...);
  } else {
    return false;
  }
}();

using F = ours::Functions;
static_assert(kSameCall<decltype(F::create), decltype(&cublasLtCreate)>);
static_assert(kSameCall<decltype(F::destroy), decltype(&cublasLtDestroy)>);
static_assert(kSameCall<decltype(F::desc_create), decltype(&cublasLtMatmulDescCreate)>);
static_assert(kSameCall<decltype(F::desc_destroy), decltype(&cublasLtMatmulDescDestroy)>);
static_assert(kSameCall<decltype(F::desc_set), decltype(&cublasLtMatmulDescSetAttribute)>);
static_assert(kSameCall<decltype(F::layout_create), decltype(&cublasLtMatrixLayoutCreate)>);
static_assert(kSameCall<decltype(F::layout_destroy), decltype(&cublasLtMatrixLayoutDestroy)>);
static_assert(kSameCall<decltype(F::preference_create), decltype(&cublasLtMatmulPreferenceCreate)>);
static_assert(kSameCall<decltype(F::preference_destroy), decltype(&cublasLtMatmulPreferenceDestroy)>);
static_assert(kSameCall<decltype(F::preference_set), decltype(&cublasLtMatmulPreferenceSetAttribute)>);
static_assert(kSameCall<decltype(F::heuristic), decltype(&cublasLtMatmulAlgoGetHeuristic)>);
static_assert(kSameCall<decltype(F::matmul), decltype(&cublasLtMatmul)>);
static_assert(!kSameCall<decltype(F::desc_create), decltype(&cublasLtMatmulDescSetAttribute)>);

TEST(CublasLtSignatures, AreNvidias) { EXPECT_GE(CUBLAS_VER_MAJOR, 12); }

}  // namespace

#else

TEST(CublasLtSignatures, AreNvidias) { GTEST_SKIP() << "this build has no toolkit with cublasLt.h (--config=cuda)"; }

#endif
