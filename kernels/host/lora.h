// LoRA adapters of many slots in one batch (Kernels::lora): for up to four tokens of a slot at a time the shrink A x, then
// the expand, which is added to y. Threads take such tiles. One call at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/host/dot_f32.h"
#include "kernels/host/thread_pool.h"
#include "kernels/kernels.h"

namespace troupe::kernels {

struct LoraExpandTile {
  const float* s = nullptr;  // [n_tokens], s_stride apart: [rank]
  std::size_t s_stride = 0;
  std::size_t n_tokens = 0;
  const float* b = nullptr;  // [rank][n_rows]
  std::size_t rank = 0;
  std::size_t n_rows = 0;
  float* y = nullptr;  // [n_tokens], y_stride apart; added to
  std::size_t y_stride = 0;
};

using LoraExpand = void (*)(const LoraExpandTile& tile);
LoraExpand lora_expand(Target target);

class Lora {
 public:
  Lora(Target target, std::size_t max_rank, ThreadPool& pool);

  void run(std::span<const LoraJob> jobs, std::span<const LoraRun> runs, const float* x, std::size_t cols);

 private:
  void tile(const LoraJob& job, const LoraWeight& w, std::size_t token, std::size_t n, const float* x, std::size_t cols, unsigned thread);

  std::size_t max_rank_;
  ThreadPool& pool_;
  DotF32 dot_;
  LoraExpand expand_;
  std::vector<float> shrunk_;  // [threads][tokens of a tile][max_rank]
};

}  // namespace troupe::kernels
