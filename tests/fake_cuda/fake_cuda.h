// A CUDA runtime without a GPU, for tests: streams are threads, copies are asynchronous for real, device memory is
// host memory that starts as garbage, page-locked memory knows who touches it when, and any call can be made to fail.
//
// It is stricter than NVIDIA's: what CUDA would let pass and what then goes wrong now and then on a GPU is reported,
// each time with a sentence that names the call:
//   - a stream wait on an event that was never recorded, or not again since the stream waited for it (it waits for nothing);
//   - a call that a stream capture forbids: from any thread during a global capture, from the capturing thread during a
//     thread-local one (the capture is then invalid, as CUDA's is);
//   - a kernel whose first launch is into a capture, where CUDA may not load it;
//   - a call on a stream of another device than the calling thread's, or from a thread that never set its device;
//   - page-locked memory that the host writes while a copy out of it, or a kernel that reads it, is queued, or touches before
//     it has seen (by an event, or the stream) that what writes it is complete, or touches after it was freed;
//   - cudaMemcpyAsync with memory that is not page-locked (it is not asynchronous), or outside a device allocation; a kernel that is
//     given memory that the device does not reach;
//   - an event destroyed, or recorded again, while it is in flight; a stream destroyed with work; a graph destroyed
//     while a launch of it is in flight; memory freed under a copy; a handle used after its end;
//   - a CUDA call from inside a host function;
//   - more host functions queued on a stream than CUDA's own queue holds: there the call waits for the stream, and every other
//     thread's calls may wait with it.
// Touching is caught by page protection: the host's view of page-locked memory loses its access rights while copies are
// in flight, the streams use another view. A touch is caught once, then let through.
//
// At exit, reports that nobody took and handles that nobody gave back are printed and end the process with status 97.
//
// Threads: any. State is the process's, as CUDA's is; reset() between tests.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace fake_cuda {

// clang-format off
#define FAKE_CUDA_CALLS(X) \
  X(cudaGetDeviceCount) X(cudaSetDevice) X(cudaDeviceGetAttribute) X(cudaStreamCreateWithFlags) \
  X(cudaStreamCreateWithPriority) X(cudaDeviceGetStreamPriorityRange) X(cudaStreamDestroy) X(cudaStreamQuery) \
  X(cudaStreamSynchronize) X(cudaStreamWaitEvent) X(cudaEventCreateWithFlags) X(cudaEventRecord) X(cudaEventQuery) \
  X(cudaEventSynchronize) X(cudaEventDestroy) X(cudaEventElapsedTime) X(cudaMemcpyAsync) X(cudaMemsetAsync) \
  X(cudaMallocAsync) X(cudaFreeAsync) X(cudaHostAlloc) X(cudaFreeHost) X(cudaLaunchHostFunc) \
  X(cudaStreamBeginCapture) X(cudaStreamEndCapture) X(cudaGraphInstantiate) X(cudaGraphLaunch) X(cudaGraphDestroy) \
  X(cudaGraphExecDestroy) X(kernel_launch)
// clang-format on

enum class Call : std::uint8_t {
#define FAKE_CUDA_NAME(name) name,
  FAKE_CUDA_CALLS(FAKE_CUDA_NAME)
#undef FAKE_CUDA_NAME
      count
};
constexpr std::size_t kCalls = static_cast<std::size_t>(Call::count);
const char* name(Call call);

struct Options {
  int devices = 1;               // 0: cudaErrorNoDevice
  bool driver_installed = true;  // false: every call answers cudaErrorInsufficientDriver
  int driver_version = 13000;    // of an earlier major version than the runtime's: likewise
  bool memory_pools = true;
  int compute_capability = 90;
  bool timed_events = false;            // false: an event that takes the time is reported
  std::size_t device_bytes = 1u << 30;  // of one device
  std::uint64_t jitter = 0;             // a seed: streams dawdle before some operations; 0 = they don't
};

// The `nth` (from 1) call of that kind from now on fails with `error`; if sticky, the device is lost and so does every later call.
struct Fault {
  Call call = Call::cudaGetDeviceCount;
  std::uint64_t nth = 1;
  cudaError_t error = cudaErrorUnknown;
  bool sticky = false;
};

// Works off the streams, forgets all that is alive, all reports, faults and losses. Not while other threads call.
void reset(const Options& options = {});
// CUDA documents no bound. 56 pairs of a host function and an event's record were seen to fit, and the next to wait.
inline constexpr std::size_t kMostHostFunctions = 32;
// Of a stream that is alive; lower is served first, and the fake has no preference.
inline constexpr int kGreatestPriority = -5;
int priority(cudaStream_t stream);
void inject(const Fault& fault);
std::size_t faults_waiting();    // for their call to come
std::uint64_t calls(Call call);  // since the reset

// What was done wrong since the reset, and not taken yet.
std::vector<std::string> take_reports();
// What is alive, a sentence for each.
std::vector<std::string> leaks();

// What `kernel<<<..., stream>>>()` is: runs on the stream's thread. An error it returns loses the device. As there, a
// launch that fails says so in cudaGetLastError only.
using Kernel = std::function<cudaError_t()>;
void launch(cudaStream_t stream, Kernel kernel);
// The same, for a kernel that reads, or writes, memory that it is given by address. Page-locked memory whose begin it is given is
// then in use as by a copy; a kernel in a graph is not followed. Such a kernel goes by device_address, where the host's rights don't
// matter.
struct Touched {
  const void* memory = nullptr;
  bool writes = false;
  bool in_struct = false;  // a word of one, and perhaps no address: only asked whether it is the host's
};
// `which` kernel it is: each has to be loaded, which its first launch does.
void launch(cudaStream_t stream, const void* which, const std::vector<Touched>& touched, Kernel kernel);
void* device_address(void* of_host);
// For kernels: something that was done wrong.
void report(std::string sentence);

}  // namespace fake_cuda
