// The driver that the program links: without a toolkit (default build) or without a GPU it says why, and what to do.
#include <gtest/gtest.h>

#include "device/cuda/driver.h"

namespace troupe::device {
namespace {

TEST(CudaWithoutADevice, SaysSoInOneSentence) {
  auto driver = make_cuda_driver({.index = 63});  // no machine has so many
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().code, ErrorCode::unsupported);
  const std::string& what = driver.error().what;
  EXPECT_EQ(what.find("cuda:63 cannot be used: "), 0u) << what;
  EXPECT_NE(what.find("use the host device: --device host:0"), std::string::npos) << what;
  EXPECT_EQ(what.find('\n'), std::string::npos) << what;
}

}  // namespace
}  // namespace troupe::device
