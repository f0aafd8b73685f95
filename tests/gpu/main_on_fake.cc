// Runs the kernels' tests on the fake runtime. The heap of gpu_heap.cc is all that may be left at the end; it lives until the
// process ends, so the fake's own look at the end comes too late for it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tests/fake_cuda/fake_cuda.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  int failed = RUN_ALL_TESTS();
  const auto wrong = [&](const std::string& sentence) {
    std::fprintf(stderr, "%s\n", sentence.c_str());
    failed = 1;
  };
  for (const std::string& report : fake_cuda::take_reports()) wrong(report);
  const auto leaks = fake_cuda::leaks();
  if (leaks.size() != 1) wrong("not the heap alone is left");
  for (const std::string& leak : leaks) {
    if (leak.find("page-locked bytes") == std::string::npos) wrong(leak);
  }
  std::fflush(nullptr);
  std::_Exit(failed);
}
