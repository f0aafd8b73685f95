// The kernels on the host: the interface of kernels.h by the families in this folder, with a pool of threads that
// splits output rows. Every call has run when it returns. All scratch is made at construction.
//
// Thread: one at a time (the stream's, inside a host function).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/host/target.h"
#include "kernels/kernels.h"

namespace troupe::kernels {

struct HostKernelsOptions {
  bool exact = false;    // F32 activations and KV; else 8-bit activations and binary16 KV
  unsigned threads = 1;  // in all
  Target target = best_target();
  std::size_t max_rows = 1;     // rows of x in any call (tokens of a step)
  std::size_t max_cols = 32;    // columns of any weight
  std::size_t max_context = 1;  // positions that attention may read
  std::size_t max_group = 1;    // query heads per KV head
  std::size_t block_size = 16;  // positions in a KV block
  std::size_t max_lora_rank = 0;
};

std::unique_ptr<Kernels> make_host_kernels(const HostKernelsOptions& options);

}  // namespace troupe::kernels
