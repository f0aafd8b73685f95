// The fake runtime's inside: what is alive, the streams' threads, the one lock.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/fake_cuda/fake_cuda.h"
#include "tests/fake_cuda/pinned.h"

namespace fake_cuda {
// How far each stream had come: an event's clock says what is complete once the event is.
using Clock = std::map<CUstream_st*, std::uint64_t>;

// One piece of work, as enqueued or as captured.
struct Work {
  enum class Kind : std::uint8_t { copy, set, function, kernel, free, record, wait };
  Kind kind = Kind::kernel;
  void* dst = nullptr;        // copy, set; free: the memory
  const void* src = nullptr;  // copy
  std::size_t bytes = 0;
  int value = 0;  // set
  cudaMemcpyKind direction = cudaMemcpyHostToDevice;
  cudaHostFn_t function = nullptr;
  void* context = nullptr;
  Kernel kernel;
  std::vector<Touched> touched;  // by the kernel
  CUevent_st* event = nullptr;   // record, wait
  std::uint64_t count = 0;       // which record of the event
};

// A copy's hold on page-locked memory until the host has seen its end.
struct Hold {
  Pinned::Area* area = nullptr;
  const void* ptr = nullptr;
  std::size_t bytes = 0;
  Access access = Access::copy_in;
  std::uint64_t seq = 0;
};
}  // namespace fake_cuda

struct CUevent_st {
  int device = 0;
  std::uint64_t recorded = 0;
  std::uint64_t completed = 0;
  bool captured = false;  // recorded on a stream that was being captured
  bool timed = false;
  std::chrono::steady_clock::time_point at;  // of the last completion
  fake_cuda::Clock clock;
};

struct CUgraph_st {
  std::vector<fake_cuda::Work> nodes;
};

struct CUgraphExec_st {
  std::vector<fake_cuda::Work> nodes;
  CUstream_st* stream = nullptr;  // of the last launch
  std::uint64_t seq = 0;
};

struct CUstream_st {
  struct Queued {
    fake_cuda::Work work;
    std::uint64_t seq = 0;
  };
  int device = 0;
  int priority = 0;
  std::deque<Queued> queue;  // the front one is being worked on
  std::uint64_t enqueued = 0, done = 0;
  fake_cuda::Clock clock;  // of other streams: what its waits imply
  std::deque<fake_cuda::Hold> holds;
  bool capturing = false, capture_broken = false;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id capturer;
  std::unique_ptr<CUgraph_st> graph;
  bool stop = false;
  std::thread thread;
};

namespace fake_cuda {

struct DeviceMemory {
  std::size_t bytes = 0;
  int device = 0;
};

struct Machine {
  Machine();
  ~Machine();
  std::mutex mutex;
  std::condition_variable changed;
  Options options;
  Pinned pinned;
  std::vector<cudaError_t> lost;  // by device; cudaSuccess = alive
  std::set<CUstream_st*> streams;
  std::set<CUevent_st*> events;
  std::set<CUgraph_st*> graphs;
  std::set<CUgraphExec_st*> execs;
  std::map<std::uintptr_t, DeviceMemory> memory;
  std::vector<std::size_t> used;  // by device, bytes
  // What was destroyed, kept so that no address comes again before the reset.
  std::vector<std::unique_ptr<CUstream_st>> old_streams;
  std::vector<std::unique_ptr<CUevent_st>> old_events;
  std::vector<std::unique_ptr<CUgraph_st>> old_graphs;
  std::vector<std::unique_ptr<CUgraphExec_st>> old_execs;
  std::vector<Fault> faults;
  std::set<const void*> loaded;  // kernels that were launched
  std::array<std::uint64_t, kCalls> calls{};
  std::vector<std::string> reports;
  std::mt19937_64 dawdle;

  void report(std::string sentence) { reports.push_back(std::move(sentence)); }
  void lose(int device, cudaError_t error);
  // The allocation that holds [ptr, ptr + bytes), or none.
  DeviceMemory* find(const void* ptr, std::size_t bytes);
  // Checks the work, takes its holds and queues it, or adds it to the graph that is being captured.
  cudaError_t enqueue(CUstream_st& stream, Work work, const char* call);
  // The host has seen that the stream has passed `seq`: the copies up to there may be touched.
  void seen(CUstream_st* stream, std::uint64_t seq);
  void seen(const Clock& clock);
  void work(CUstream_st* stream);  // a stream's thread
  std::vector<std::string> describe_alive() const;

 private:
  cudaError_t check_copy(CUstream_st& stream, const Work& work, const char* call, bool& pageable);
  cudaError_t run(std::unique_lock<std::mutex>& lock, CUstream_st& stream, const Work& work);
};
Machine& machine();

struct ThreadState {
  int device = 0;
  bool bound = false;  // cudaSetDevice was called
  bool in_host_function = false;
  cudaError_t last = cudaSuccess;
};
ThreadState& this_thread();

// What every call begins and ends with. `lock` is held between.
class Entry {
 public:
  enum class Needs : std::uint8_t { nothing, device };
  Entry(Call call, Needs needs);
  bool refused() const { return error_ != cudaSuccess; }
  cudaError_t error() const { return error_; }
  // Marks the call's result as the thread's last error, as CUDA does.
  static cudaError_t done(cudaError_t error);

  std::unique_lock<std::mutex> lock;
  Machine& m;

  // The handle is alive, and its device is the thread's.
  bool usable(CUstream_st* stream);
  bool alive(CUevent_st* event);
  // For calls that a capture forbids: breaks the captures that this thread's call breaks.
  bool breaks_capture();
  const char* name() const { return fake_cuda::name(call_); }

 private:
  Call call_;
  cudaError_t error_ = cudaSuccess;
};

}  // namespace fake_cuda
