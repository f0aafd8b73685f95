// Under --config=cuda the fake's sources are compiled against NVIDIA's header, so that this program only builds if the
// fake's signatures are NVIDIA's; in the default build against the fake's own. The values are held here in both.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "tests/fake_cuda/fake_cuda.h"

namespace {

static_assert(cudaSuccess == 0 && cudaErrorInvalidValue == 1 && cudaErrorMemoryAllocation == 2 && cudaErrorInitializationError == 3);
static_assert(cudaErrorCudartUnloading == 4 && cudaErrorInsufficientDriver == 35 && cudaErrorDevicesUnavailable == 46);
static_assert(cudaErrorNoDevice == 100 && cudaErrorInvalidDevice == 101 && cudaErrorECCUncorrectable == 214);
static_assert(cudaErrorNvlinkUncorrectable == 220 && cudaErrorContained == 226 && cudaErrorInvalidResourceHandle == 400);
static_assert(cudaErrorNotReady == 600 && cudaErrorIllegalAddress == 700 && cudaErrorLaunchTimeout == 702);
static_assert(cudaErrorContextIsDestroyed == 709 && cudaErrorAssert == 710 && cudaErrorHardwareStackError == 714);
static_assert(cudaErrorIllegalInstruction == 715 && cudaErrorMisalignedAddress == 716 && cudaErrorInvalidAddressSpace == 717);
static_assert(cudaErrorInvalidPc == 718 && cudaErrorLaunchFailure == 719 && cudaErrorTensorMemoryLeak == 721);
static_assert(cudaErrorNotPermitted == 800 && cudaErrorNotSupported == 801 && cudaErrorMpsClientTerminated == 810);
static_assert(cudaErrorStreamCaptureUnsupported == 900 && CUDART_VERSION / 1000 == 13);
static_assert(cudaErrorStreamCaptureInvalidated == 901 && cudaErrorStreamCaptureUnmatched == 903 && cudaErrorCapturedEvent == 907);
static_assert(cudaErrorStreamCaptureWrongThread == 908 && cudaErrorExternalDevice == 911 && cudaErrorUnknown == 999);
static_assert(cudaMemcpyHostToDevice == 1 && cudaMemcpyDeviceToHost == 2 && cudaMemcpyDeviceToDevice == 3);
static_assert(cudaStreamCaptureModeGlobal == 0 && cudaStreamCaptureModeThreadLocal == 1 && cudaStreamCaptureModeRelaxed == 2);
static_assert(cudaDevAttrComputeCapabilityMajor == 75 && cudaDevAttrComputeCapabilityMinor == 76 && cudaDevAttrMemoryPoolsSupported == 115);
static_assert(cudaStreamNonBlocking == 1 && cudaEventBlockingSync == 1 && cudaEventDisableTiming == 2 && cudaEventDefault == 0 &&
              cudaHostAllocPortable == 1);

// One more call through every layer, so that the program links the fake and not only its header.
TEST(Signatures, TheFakeAnswers) {
  fake_cuda::reset({.devices = 3});
  int count = 0;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(count, 3);
  EXPECT_TRUE(fake_cuda::take_reports().empty());
}

}  // namespace
