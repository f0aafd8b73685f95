// Lives in which one CUDA call fails, on the fake runtime: at the start or later, once or for good. R5 and R7: every request ends once,
// with the tokens that it gives undisturbed or the first of them and an error that says which, and nothing leaks.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/actors/cuda_fault.h"
#include "tests/actors/llama_cuda_workload.h"

namespace troupe::test {

using Call = fake_cuda::Call;

inline constexpr Call kAllCalls[] = {
    Call::cudaGetDeviceCount,   Call::cudaSetDevice,   Call::cudaDeviceGetAttribute, Call::cudaStreamCreateWithFlags,
    Call::cudaStreamDestroy,    Call::cudaStreamQuery, Call::cudaStreamSynchronize,  Call::cudaEventCreateWithFlags,
    Call::cudaEventRecord,      Call::cudaEventQuery,  Call::cudaEventSynchronize,   Call::cudaEventDestroy,
    Call::cudaMemcpyAsync,      Call::cudaMemsetAsync, Call::cudaMallocAsync,        Call::cudaFreeAsync,
    Call::cudaHostAlloc,        Call::cudaFreeHost,    Call::cudaStreamBeginCapture, Call::cudaStreamEndCapture,
    Call::cudaGraphInstantiate, Call::cudaGraphLaunch, Call::cudaGraphDestroy,       Call::cudaGraphExecDestroy,
    Call::kernel_launch};
// Those that copies make: of blocks by kernels, of recurrent state by themselves.
inline constexpr Call kCopyCalls[] = {Call::cudaSetDevice,       Call::cudaStreamCreateWithFlags,
                                      Call::cudaStreamDestroy,   Call::cudaStreamQuery,
                                      Call::cudaStreamWaitEvent, Call::cudaEventCreateWithFlags,
                                      Call::cudaEventRecord,     Call::cudaEventQuery,
                                      Call::cudaEventDestroy,    Call::cudaHostAlloc,
                                      Call::cudaFreeHost,        Call::cudaMemcpyAsync,
                                      Call::kernel_launch};

// Those that a stream for prefill makes.
inline constexpr Call kPrefillCalls[] = {Call::cudaSetDevice,
                                         Call::cudaStreamCreateWithFlags,
                                         Call::cudaStreamCreateWithPriority,
                                         Call::cudaDeviceGetStreamPriorityRange,
                                         Call::cudaStreamDestroy,
                                         Call::cudaStreamQuery,
                                         Call::cudaEventRecord,
                                         Call::cudaEventQuery,
                                         Call::cudaMemcpyAsync,
                                         Call::cudaMallocAsync,
                                         Call::cudaHostAlloc,
                                         Call::kernel_launch};

using Cell = std::tuple<Call, bool>;  // the call, sticky
class CudaFault : public testing::TestWithParam<Cell> {
 protected:
  std::string model = kModel;
  // With files, there is a stream for copies too.
  bool spills = false;
  bool prefill_stream = false;
  std::vector<Request> requests() const {
    std::vector<Request> out;
    // Prompts of 28 and 33 tokens fill the five blocks of 16 positions; when the first one's answer needs another, the second,
    // with two full ones, gives way.
    for (std::uint64_t client = spills ? 5 : 1; client <= (spills ? 6u : 3u); ++client) {
      Request r = request(client);
      if (!spills) r.prompt.resize(5);
      r.stop.max_tokens = spills ? 8 : 5;
      out.push_back(r);
    }
    return out;
  }
  device::LoadOptions load() const {
    device::LoadOptions out = test::small_load(2);
    out.max_graphs = 1;  // so that graphs are evicted, too
    out.max_batch = 4;
    out.kv_blocks = 32;
    return out;
  }
  // Once for all tests of a program.
  const Streams& undisturbed() {
    static std::map<std::pair<std::string, bool>, Streams> known;
    Streams& want = known[{model, spills}];
    if (want.empty()) {
      fake_cuda::reset();
      want = run(2, 0, requests(), load(), {}, {}, model);
      fake_cuda::expect_clean();
    }
    return want;
  }

  // Whether the call came that was to fail.
  bool live(const fake_cuda::Fault& fault, bool at_start) {
    const Streams& want = undisturbed();
    const CudaLife expected{fault, !at_start};
    fake_cuda::reset();
    if (at_start) fake_cuda::inject(fault);
    {
      device::LoadOptions small = load();
      if (spills) small.kv_blocks = 5;
      small.prefill_stream = prefill_stream;
      RuntimeOptions options = spills ? spilling("faults") : RuntimeOptions{};
      if (prefill_stream) options.streams = 3;
      CudaRuntime on(model, small, options);
      if (on.started()) {
        if (!at_start) fake_cuda::inject(fault);
        for (const Request& r : requests()) (void)on.submit(r);
        on.clients.wait_ended(on.taken());
        for (const auto& [client, record] : on.clients.all()) expected.expect_ended(record, want.at(client));
        const bool met = fake_cuda::faults_waiting() == 0;
        expected.expect_stopped(on.runtime->stop(), met);
      } else {
        EXPECT_TRUE(on.error().code == ErrorCode::device_lost || on.error().code == ErrorCode::device_failed ||
                    on.error().code == ErrorCode::unsupported)
            << on.error().what;
      }
    }
    const bool met = fake_cuda::faults_waiting() == 0;
    for (const std::string& report : fake_cuda::take_reports()) ADD_FAILURE() << report;
    if (!fault.sticky) {
      for (const std::string& leak : fake_cuda::leaks()) ADD_FAILURE() << leak;
    }
    fake_cuda::reset();
    return met;
  }
  // `times` ascend.
  void all_lives(const std::vector<std::uint64_t>& times) {
    const auto [call, sticky] = GetParam();
    const cudaError_t error = sticky ? cudaErrorIllegalAddress : cudaErrorInvalidValue;
    bool met = false;
    for (const bool at_start : {true, false}) {
      for (const std::uint64_t nth : times) {
        SCOPED_TRACE((at_start ? "from the start, time " : "while it runs, time ") + std::to_string(nth));
        if (!live({.call = call, .nth = nth, .error = error, .sticky = sticky}, at_start)) break;  // nor is it made more often
        met = true;
      }
    }
    EXPECT_TRUE(met) << "the call is never made";
  }
};

class SpillCudaFault : public CudaFault {
 protected:
  SpillCudaFault() { spills = true; }
};

inline std::string cell_name(const testing::TestParamInfo<Cell>& info) {
  return std::string(fake_cuda::name(std::get<0>(info.param))) + (std::get<1>(info.param) ? "_sticky" : "_once");
}

}  // namespace troupe::test
