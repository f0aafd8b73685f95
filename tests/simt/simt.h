// A small SIMT machine: runs the blocks of a kernel on the CPU, each thread of a block as a fiber, so that the tests run
// the very .cu sources where there is no GPU. cuda_names.h gives it CUDA's names.
//
// A thread runs until it waits (barrier, warp exchange) or passes an atomic; which thread, and which block, runs next is drawn from the
// seed; in half of the blocks one warp, or one thread, runs only where nobody else can. So a result that rests on an order which CUDA
// does not promise differs between seeds. Shared memory starts each block as NaN bytes and every array is an allocation of its own: what
// is read before it is written shows, and ASan sees what is out of bounds. What CUDA leaves undefined and this machine notices is
// thrown as Fault: barriers that some threads of a block (or lanes of a warp's mask) never reach, different barriers taken for one,
// exchanges with a lane outside the mask. Threads of different blocks never run at once; there is no model of caches.
//
// Thread: a machine belongs to the thread that launches. ThreadSanitizer knows no fibers (tag tests no_tsan).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <vector>

namespace troupe::simt {

// A place in the sources: that of the call, where it is a default argument.
struct Where {
  const char* file = "";
  unsigned line = 0;
  static constexpr Where current(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) { return {file, line}; }
};

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
};

struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Lane;

class Machine {
 public:
  explicit Machine(std::uint64_t seed);
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  ~Machine();

  // Runs every block of the grid; returns when all have ended. At most 1024 threads a block. Throws Fault.
  void launch(Dim3 grid, Dim3 block, const std::function<void()>& body);

  std::uint64_t switches() const;  // of fibers, since the start
  std::uint64_t launches() const;

  struct State;

 private:
  std::unique_ptr<State> state_;
};

// Memory that a kernel is given by an argument of its own: what it reads, or, by a pointer to what is not const, may write. Of a struct
// each word that is as large as a pointer: it may be none.
struct Touched {
  const void* memory = nullptr;
  bool writes = false;
  bool in_struct = false;
};

// What a kernel's launch on a CUDA stream does (kernels/cuda/launch.h). Who links the kernels links one of two definitions:
// //tests/simt:on_machine, where a stream is a Machine* and the kernel has ended when this returns, or
// //tests/fake_cuda:simt_streams, where it is one of the fake runtime's.
// `kernel`: which it is.
void launch_on(void* stream, const void* kernel, Dim3 grid, Dim3 block, std::function<void()> body, std::vector<Touched> touched);
// Where the device finds what the host knows under that address.
void* device_address(void* of_host);

// What a kernel's code calls; only inside a launch.
Dim3 thread_index();
Dim3 block_index();
Dim3 block_size();
Dim3 grid_size();
unsigned lane_index();  // 0 to 31, in its warp

// Every thread of the block; returns whether any gave `value` != 0.
int block_barrier(int value, const char* operation, Where where);

// Every lane of the mask; each gives an argument, and when all have come `complete` gets them (nullptr: not in the mask)
// before any goes on.
using Complete = void (*)(void* const* arguments);
void warp_barrier(unsigned mask, void* argument, Complete complete, const char* operation, Where where);

// The block's memory of that key, made when the first thread asks.
void* shared_memory(const void* key, std::size_t bytes);

// A place where another thread may run.
void may_switch();

}  // namespace troupe::simt
