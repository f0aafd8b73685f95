// Tokens of rows that sample (Kernels::sample). Threads take rows. One call at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/host/thread_pool.h"
#include "kernels/kernels.h"
#include "kernels/sampling.h"

namespace troupe::kernels {

class Sample {
 public:
  explicit Sample(ThreadPool& pool) : pool_(pool), places_(pool.threads()) {}

  void run(const SampleArgs& args);

 private:
  struct Place {  // of a thread; grows to the vocabulary and stays
    SamplingScratch scratch;
    std::vector<float> work;            // the logits after penalties, biases and bars
    std::vector<std::uint32_t> counts;  // by id, 0 between rows
  };
  void row(const SampleArgs& args, std::uint32_t i, Place& place);

  ThreadPool& pool_;
  std::vector<Place> places_;
};

}  // namespace troupe::kernels
