// Kernels on the streams of the fake runtime: each runs on its stream's thread, by a SIMT machine of that thread's. What the
// machine finds wrong is reported, and loses the device as a kernel's fault does.
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "tests/fake_cuda/fake_cuda.h"
#include "tests/simt/simt.h"

namespace troupe::simt {

void launch_on(void* stream, const void* kernel, Dim3 grid, Dim3 block, std::function<void()> body, std::vector<Touched> touched) {
  std::vector<fake_cuda::Touched> memory;
  for (const Touched& t : touched) memory.push_back({t.memory, t.writes, t.in_struct});
  fake_cuda::launch(static_cast<cudaStream_t>(stream), kernel, std::move(memory), [grid, block, body = std::move(body)] {
    static thread_local Machine machine(1);
    try {
      machine.launch(grid, block, body);
      return cudaSuccess;
    } catch (const std::exception& wrong) {
      fake_cuda::report(std::string("a kernel failed: ") + wrong.what());
      return cudaErrorLaunchFailure;
    }
  });
}

void* device_address(void* of_host) { return fake_cuda::device_address(of_host); }

}  // namespace troupe::simt
