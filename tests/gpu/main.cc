// The tests that run on a real GPU where there is one. Without one none of them runs, and one that is skipped says why. The
// device is CUDA's first; CUDA_VISIBLE_DEVICES names another.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "device/cuda/driver.h"

namespace {

// "": there is one.
std::string why_no_gpu() {
  const auto driver = troupe::device::make_cuda_driver({});
  return driver ? "" : driver.error().what;
}

TEST(Gpu, IsThere) {
  if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << "none of these tests ran: " << why;
}

int status = 0;  // of the process

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  // What static objects hold by now may lie in page-locked memory (gpu_heap.cc), which CUDA may take back before their destructors run:
  // the process ends between CUDA's own handlers, which are registered later and so come first, and those destructors.
  std::atexit([] {
    std::fflush(nullptr);
    std::_Exit(status);
  });
  if (!why_no_gpu().empty()) testing::GTEST_FLAG(filter) = "Gpu.IsThere";
  status = RUN_ALL_TESTS();
  return status;
}
