// Where the kernels of a test run: on the SIMT emulation (machine_simt.cc), or on a GPU (machine_gpu.cc). Who links the tests
// links one of the two; the sources are the same. On both, device memory is whatever std::vector allocates: ordinary memory, or
// page-locked memory that the GPU reads and writes over its bus.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "kernels/cuda/stream.h"

namespace troupe::kernels {

class Machine {
 public:
  // seed: of the order in which the emulation runs threads. A GPU has an order of its own.
  explicit Machine(std::uint64_t seed);
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  ~Machine();

  // For one launch: launch_x(..., m.stream()). Where that expression ends the kernel has ended, too.
  class Launch {
   public:
    explicit Launch(Machine& machine) : machine_(machine) {}
    Launch(const Launch&) = delete;
    Launch& operator=(const Launch&) = delete;
    ~Launch() { machine_.wait(); }
    operator CudaStream() const { return machine_.native(); }  // NOLINT: stands for the stream

   private:
    Machine& machine_;
  };
  Launch stream() { return Launch(*this); }

  // For who keeps the stream: what it launches has ended after wait(), which fails the test if CUDA reports an error.
  CudaStream native();
  void wait();

  std::optional<std::uint64_t> launches() const;  // so far; a GPU does not tell

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace troupe::kernels
